"""Who: the asker, named tokens, and the audit of what people did."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

from fastapi import APIRouter, Query
from pydantic import ConfigDict, Field, field_validator
from starlette.responses import Response

from perdure.api.auth import hash_of, new_secret
from perdure.api.context import Api, Asker
from perdure.api.documentation import errors
from perdure.api.shapes import Page, PageQuery, Reply, Request
from perdure.api.wire import JSONReply
from perdure.turns import AuditEntry, Role, Token

router = APIRouter(prefix="/api", tags=["people"])


class TokenRequest(Request):
    model_config = ConfigDict(extra="forbid", json_schema_extra={"examples": [{"name": "ann", "role": "user"}]})

    name: Annotated[str, Field(max_length=200)] = Field(description="Owner of what is made with it, and who decided.")
    role: Role = Field(
        description="`user`: what is its own. `operator`: reads, decides, cancels and resumes everything."
    )

    @field_validator("role", mode="before")
    @classmethod
    def _known_role(cls, role: Any) -> Any:
        if role in list(Role):
            return role
        raise ValueError(f"must be {' or '.join(f'`{each}`' for each in Role)}")


class MeReply(Reply):
    name: str
    role: Role
    admin: bool = Field(description="The server's own token: may also make and revoke tokens.")


class TokenReply(Reply):
    name: str
    role: Role
    created_at: datetime
    created_by: str
    revoked_at: datetime | None
    last_used_at: datetime | None = Field(description="To the minute.")

    @classmethod
    def of(cls, token: Token) -> TokenReply:
        return cls(**_token_fields(token))


def _token_fields(token: Token) -> dict[str, Any]:
    return {
        "name": token.name,
        "role": token.role,
        "created_at": token.created_at,
        "created_by": token.created_by,
        "revoked_at": token.revoked_at,
        "last_used_at": token.last_used_at,
    }


class NewTokenReply(TokenReply):
    secret: str = Field(description="Told once: only its hash is kept.")


class TokensReply(Reply):
    items: list[TokenReply]


class AuditReply(Reply):
    number: int
    at: datetime
    by: str
    action: str
    conversation: str | None
    turn: str | None
    card: str | None
    detail: dict[str, Any]

    @classmethod
    def of(cls, entry: AuditEntry) -> AuditReply:
        return cls(
            number=entry.number,
            at=entry.at,
            by=entry.by,
            action=entry.action,
            conversation=entry.conversation,
            turn=entry.turn,
            card=entry.card,
            detail=dict(entry.detail),
        )


@router.get("/me", response_model=MeReply, summary="Who asks")
async def me(person: Asker) -> Response:
    return JSONReply(MeReply(name=person.name, role=person.role, admin=person.admin).model_dump())


@router.get("/audit", response_model=Page[AuditReply], summary="What people did, newest first", responses=errors(400))
async def audit(query: Annotated[PageQuery, Query()], api: Api, person: Asker) -> Response:
    """Of a user: what was done to its conversations."""
    page = await api.agents.audit(person, limit=query.limit, cursor=query.cursor)
    return JSONReply(Page(items=[AuditReply.of(entry) for entry in page.items], next=page.next).model_dump())


@router.get("/tokens", response_model=TokensReply, summary="Named tokens, the revoked ones too")
async def tokens(api: Api, person: Asker) -> Response:
    found = await api.agents.tokens(person)
    return JSONReply(TokensReply(items=[TokenReply.of(token) for token in found]).model_dump())


@router.post(
    "/tokens",
    status_code=201,
    response_model=NewTokenReply,
    summary="Make a token",
    responses=errors(400, 413, 503, 507),
)
async def create(request: TokenRequest, api: Api, person: Asker) -> Response:
    """A name is used once, also after it was revoked. The secret is in this answer and nowhere else."""
    secret = new_secret()
    token = await api.agents.create_token(person, request.name, request.role, hash_of(secret))
    return JSONReply(NewTokenReply(**_token_fields(token), secret=secret).model_dump(), status_code=201)


@router.delete(
    "/tokens/{name}", response_model=TokenReply, summary="Revoke a token", responses=errors(400, 404, 503, 507)
)
async def revoke(name: str, api: Api, person: Asker) -> Response:
    """From now on it is refused, and what it watches ends. What it started goes on."""
    token = await api.agents.revoke_token(person, name)
    api.streams.bar(token.name)
    return JSONReply(TokenReply.of(token).model_dump())
