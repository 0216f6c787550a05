"""Which of the media types that a route can answer with the caller would rather have."""


def prefers(accept: str, media: str) -> bool:
    """True where `media` is wanted more than JSON, which every route answers by default."""
    if not accept:
        return False
    weights = dict(map(_weight, accept.lower().split(",")))
    return _of(weights, media) > _of(weights, "application/json")


def _weight(part: str) -> tuple[str, float]:
    media, *parameters = (piece.strip() for piece in part.split(";"))
    for parameter in parameters:
        name, _, value = parameter.partition("=")
        if name.strip() == "q":
            try:
                return media, float(value)
            except ValueError:
                return media, 0.0
    return media, 1.0


def _of(weights: dict[str, float], media: str) -> float:
    """The most specific range that holds it decides."""
    for wanted in (media, f"{media.partition('/')[0]}/*", "*/*"):
        if wanted in weights:
            return weights[wanted]
    return 0.0
