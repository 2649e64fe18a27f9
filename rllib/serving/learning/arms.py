"""Choice of the episodes that a candidate acts in."""

import hashlib


def is_canary(episode_id: str, version: int, key: bytes, share: float) -> bool:
    """Whether an episode belongs to the share that a candidate acts in.

    It depends on the id and the candidate alone, so that all processes of a server choose alike, without a message, and
    an episode has one policy. Another candidate acts in other episodes: where ids are used again and again, none of
    them may be in the share of one. Without the key, a client cannot know which ids are chosen.

    Args:
        episode_id: of the episode.
        version: of the candidate.
        key: of the server.
        share: of the episodes.
    """
    digest = hashlib.blake2b(f"{version} {episode_id}".encode(), digest_size=8, key=key).digest()
    return int.from_bytes(digest) < share * 2**64
