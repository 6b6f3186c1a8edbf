"""The memo: what it forgets, and threads that share one."""

from threading import Thread

from relascope.core.memo import Memo


def test_the_least_recently_used_is_forgotten():
    memo, made = Memo(2), []
    for key in ("a", "b", "a", "c", "a", "b"):
        memo.get(key, lambda key=key: made.append(key))
    assert made == ["a", "b", "c", "b"]


class _Interrupted(str):
    """A key that another thread replaces in the memo as soon as it has been seen there once."""

    __hash__ = str.__hash__

    def __eq__(self, other):
        self.seen()
        return str.__eq__(self, other)


def test_a_value_that_another_thread_drops_is_still_returned():
    memo = Memo(1)
    memo.put("key", 1)
    other = Thread(target=memo.put, args=("another", 2))
    looks = iter(range(3))

    def seen():
        if next(looks, 3) == 1:
            other.start()
            other.join(0.2)  # it waits for a lock that this thread has

    key = _Interrupted("key")
    key.seen = seen
    assert memo.get(key, lambda: 3) == 1
    other.join()
    assert memo.get("another", lambda: 4) == 2
