"""What must be done so that an engine has what is wanted. Pure: the same two states give the same plan.

Order: images, networks, volumes; then containers that are not wanted any more (they may hold a port or a volume that another
needs); then the wanted ones in the order of their start; then networks that are not wanted. No plan removes a volume.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from perdure.deploy.differences import LABELS_OF_OURS, differences, in_place
from perdure.deploy.model import (
    DATA_FOLDER,
    LABEL_PROJECT,
    LABEL_ROLE,
    WITH_DATABASE,
    Action,
    CarryData,
    Change,
    Container,
    Image,
    Kind,
    Network,
    Plan,
    Real,
    Role,
    Subject,
    Volume,
    Wanted,
    digest_of,
)
from perdure.deploy.moving import moved_conversations
from perdure.deploy.naming import NEXT, UNDOING
from perdure.errors import ConfigurationError


def plan(wanted: Wanted, real: Real) -> Plan:
    """Raises ConfigurationError where something that is needed belongs to another project, where it is not there and nobody here
    may make it, and where data would be lost."""
    problems = [*_foreign(wanted, real), *_missing(wanted, real), *_losing(wanted, real)]
    if problems:
        raise ConfigurationError(problems)
    return Plan(
        project=wanted.project,
        actions=tuple(_actions(wanted, real)),
        real_digest=digest_of(veiled(wanted, real)),
        wanted_digest=digest_of(wanted),
        kept=tuple(_kept(wanted, real)),
        notes=tuple(_notes(wanted, real)),
        warnings=tuple(moved_conversations(wanted, real)),
    )


def veiled(wanted: Wanted, real: Real) -> Real:
    """The real state as it may be told: of images those that matter here alone; and every variable that the project does not know
    to be plain is a secret: what somebody set by hand may be one."""
    plain = {
        container.name: {each.name for each in container.environment if not each.secret}
        for container in wanted.containers
    }
    named = {image.reference for image in wanted.images}
    used = {container.image_id for container in real.containers}
    return replace(
        real,
        images=tuple(image for image in real.images if image.reference in named or image.id in used),
        containers=tuple(_veiled(each, plain.get(each.name, set())) for each in real.containers),
    )


def _veiled(container: Container, plain: set[str]) -> Container:
    seen = (each if each.name in plain else each.veiled() for each in container.environment)
    return replace(container, environment=tuple(sorted(seen, key=lambda each: each.name)))


# -- what cannot be planned -------------------------------------------------------------------------------------------


def _foreign(wanted: Wanted, real: Real) -> Iterator[str]:
    named: list[tuple[str, str, Mapping[str, str] | None]] = [
        *(("container", each.name, _labels_of(real.container(each.name))) for each in wanted.containers),
        *(("network", each.name, _labels_of(real.network(each.name))) for each in wanted.networks),
        *(("volume", each.name, _labels_of(real.volume(each.name))) for each in wanted.volumes if not each.external),
    ]
    for what, name, labels in named:
        owner = (labels or {}).get(LABEL_PROJECT, wanted.project)
        if owner != wanted.project:
            yield f"The {what} {name} belongs to the project {owner!r}: give this one another `name` in [deploy]."


def _labels_of(thing: Container | Network | Volume | None) -> Mapping[str, str] | None:
    return None if thing is None else thing.labels


def _missing(wanted: Wanted, real: Real) -> Iterator[str]:
    for volume in wanted.volumes:
        if volume.external and real.volume(volume.name) is None:
            yield (
                f"The volume {volume.name} is not there: make it (docker volume create {volume.name}), or take `volume` out of its "
                "[deploy.volumes] table so that it is made here."
            )


def _losing(wanted: Wanted, real: Real) -> Iterator[str]:
    for container in real.containers:
        if container.name.endswith(NEXT) or container.role not in WITH_DATABASE or container.data is not None:
            continue
        successor = wanted.container(container.name)
        if successor is None:
            yield (
                f"The project does not have {container.name} any more, but its {DATA_FOLDER} {_lies(container)} and would be lost. "
                f"Put it back into the project file and apply: its data is then carried into a volume, which stays when it goes. "
                f"Or, if nobody needs it: docker rm -f {container.name}"
            )
        elif successor.data is not None and successor.data.kind != "volume":
            yield (
                f"{DATA_FOLDER} of {container.name} {_lies(container)} and would be lost: into a folder of the machine nothing is "
                f"carried. Stop it and copy it there (docker stop {container.name}; docker cp {container.name}:{DATA_FOLDER}/. "
                f"{successor.data.source}; the files must be those of user {successor.user}), then docker rm {container.name} and apply. "
                "Or take `folder` out of its [deploy.volumes] table: then it is carried into a volume."
            )


def _kept(wanted: Wanted, real: Real) -> Iterator[str]:
    names = {volume.name for volume in wanted.volumes}
    for volume in sorted(real.volumes, key=lambda each: each.name):
        if volume.name not in names and volume.labels.get(LABEL_ROLE) == Role.DATA:
            yield volume.name


def _notes(wanted: Wanted, real: Real) -> Iterator[str]:
    """Of volumes that are not as this tool would have made them: to make another one is to lose what is in it."""
    for volume in wanted.volumes:
        found = real.volume(volume.name)
        if found is None or volume.external:
            continue
        if found.driver != volume.driver:
            yield f"The volume {found.name} has the driver {found.driver}, not {volume.driver}; it is used as it is."
        if found.options != volume.options:
            told = ", ".join(f"{name}={_without_secret(name, value)}" for name, value in sorted(found.options.items()))
            yield f"The volume {found.name} was made with options ({told}); it is used as it is."
        missing = sorted(name for name, value in volume.labels.items() if found.labels.get(name) != value)
        if missing:
            alone = " `perdure destroy --purge-data` leaves it alone." if LABEL_PROJECT in missing else ""
            yield f"The volume {found.name} was made by somebody else ({', '.join(missing)} differ); it is used as it is.{alone}"


def _without_secret(name: str, value: str) -> str:
    """Options of network file systems hold passwords."""
    return value if name in {"type", "device"} and "@" not in value else "…"


# -- actions ----------------------------------------------------------------------------------------------------------


def _actions(wanted: Wanted, real: Real) -> Iterator[Action]:
    yield from (_make_image(image) for image in wanted.images if real.image(image) is None)
    networks = [action for network in wanted.networks for action in _network(network, real)]
    yield from networks
    yield from (
        Action(Kind.CREATE, Subject.VOLUME, volume.name, "It is not there.")
        for volume in wanted.volumes
        if real.volume(volume.name) is None
    )
    names = {container.name for container in wanted.containers}
    yield from (
        Action(Kind.REMOVE, Subject.CONTAINER, container.name, _not_wanted(container))
        for container in real.containers
        if container.name not in names
    )
    renewed = frozenset(action.name for action in networks)
    for container in wanted.containers:
        yield from _container(container, wanted, real, renewed)
    yield from (
        Action(Kind.REMOVE, Subject.NETWORK, network.name, "The project has no such network any more.")
        for network in real.networks
        if wanted.network(network.name) is None
    )


def _not_wanted(container: Container) -> str:
    if container.name.endswith((NEXT, UNDOING)):
        return "An apply that was interrupted left it; the next one settles it first."
    return "The project has no such container any more."


def _make_image(image: Image) -> Action:
    if image.build is None:
        return Action(Kind.CREATE, Subject.IMAGE, image.reference, "It is not there: it is fetched.")
    what = (
        "the project's files" if image.build.files else "Perdure alone" if image.build.target == "perdure" else "NATS"
    )
    return Action(
        Kind.CREATE, Subject.IMAGE, image.reference, f"It is not there: it is built from {what} on {image.build.base}."
    )


def _network(wanted: Network, real: Real) -> Iterator[Action]:
    found = real.network(wanted.name)
    if found is None:
        yield Action(Kind.CREATE, Subject.NETWORK, wanted.name, "It is not there.")
        return
    changes = [
        Change(name, str(had), str(wants))
        for name in ("driver", "internal")
        if (had := getattr(found, name)) != (wants := getattr(wanted, name))
    ]
    ours = {name: value for name, value in found.labels.items() if name.startswith(LABELS_OF_OURS)}
    changes += [
        Change(f"labels.{name}", ours.get(name, "none"), wanted.labels.get(name, "none"))
        for name in sorted(ours.keys() | wanted.labels.keys())
        if ours.get(name) != wanted.labels.get(name)
    ]
    if changes:
        on_it = tuple(each.name for each in real.containers if any(at.network == wanted.name for at in each.networks))
        reason = f"{_names(changes)} cannot be changed while it is there; containers on it are attached again."
        yield Action(Kind.REPLACE, Subject.NETWORK, wanted.name, reason, tuple(changes), detaches=on_it)


def _container(wanted: Container, all_wanted: Wanted, real: Real, renewed: frozenset[str]) -> Iterator[Action]:
    found = real.container(wanted.name)
    if found is None:
        yield Action(Kind.CREATE, Subject.CONTAINER, wanted.name, "It is not there.")
        return
    image = real.image(_image_of(wanted, all_wanted))
    changes = [
        *differences(wanted, found, image_id=image.id if image else None),
        *_attach_again(wanted, found, renewed),
    ]
    fixed = [change for change in changes if not in_place(change)]
    if fixed:
        carry = _carry(wanted, found, real)
        reason = f"{_names(fixed)} cannot be changed while it lives."
        if carry is not None:
            reason += f" Its {DATA_FOLDER} {_lies(found)} and is carried into the volume {carry.volume}."
        elif _left_behind(wanted, found):
            reason += (
                f" Its {DATA_FOLDER} {_lies(found)} and stays there: into a folder of the machine nothing is carried."
            )
        yield Action(Kind.REPLACE, Subject.CONTAINER, wanted.name, reason, tuple(changes), carry)
    elif changes:
        down = [change for change in changes if change.attribute == "running"]
        reason = "It does not run." if len(down) == len(changes) else "It can be changed while it lives."
        yield Action(Kind.UPDATE, Subject.CONTAINER, wanted.name, reason, tuple(changes))


def _image_of(container: Container, wanted: Wanted) -> Image:
    return next(image for image in wanted.images if image.reference == container.image)


def _attach_again(wanted: Container, found: Container, renewed: frozenset[str]) -> Iterator[Change]:
    """To a network that is made anew, where nothing else differs about it."""
    same = set(wanted.networks) & set(found.networks)
    for attachment in sorted(same):
        if attachment.network in renewed:
            yield Change(f"networks.{attachment.network}", "the old network", "the new one")


def _names(changes: Sequence[Change]) -> str:
    return ", ".join(change.attribute for change in changes)


# -- data -------------------------------------------------------------------------------------------------------------


def _carry(wanted: Container, found: Container, real: Real) -> CarryData | None:
    """When what it has at /data would not be there for its successor."""
    mount = wanted.data
    if wanted.role not in WITH_DATABASE or mount is None or mount.kind != "volume":
        return None
    if found.data is not None and (found.data.kind, found.data.source) == (mount.kind, mount.source):
        return None
    return CarryData(found.name, mount.source, volume_exists=real.volume(mount.source) is not None)


def _left_behind(wanted: Container, found: Container) -> bool:
    """Whether its successor begins in a folder that the tool does not fill."""
    had, wants = found.data, wanted.data
    return (
        wanted.role in WITH_DATABASE
        and wants is not None
        and wants.kind != "volume"
        and had is not None
        and (had.kind, had.source) != (wants.kind, wants.source)
    )


def _lies(container: Container) -> str:
    data = container.data
    if data is None:
        return "lies in the container itself"
    return f"lies in the {'volume' if data.kind == 'volume' else 'folder'} {data.source}"
