"""Choice of the episodes that a candidate acts in."""

import hashlib


def is_canary(episode_id: str, key: bytes, share: float) -> bool:
    """Whether an episode belongs to the share that a candidate acts in.

    It depends on the id alone, so that all processes of a server choose alike, without a message, and an episode has
    one policy. Without the key, a client cannot know which ids are chosen.

    Args:
        episode_id: of the episode.
        key: of the server.
        share: of the episodes.
    """
    digest = hashlib.blake2b(episode_id.encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest) < share * 2**64
