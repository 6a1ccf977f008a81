"""Claims a role as often as it is told to on standard input; says whether it won."""

import sys

import tapstore


def main() -> None:
    url, name = sys.argv[1:3]
    session = tapstore.open(url)
    for line in sys.stdin:
        try:
            claim = session.claim("coder", agent=f"{name}-{line.strip()}", ttl=600)
        except tapstore.AlreadyClaimedError as exc:
            print("lost", str(exc).split(" is claimed by ")[1].split(" ")[0], flush=True)
        else:
            claim.detach()
            print("won", claim.agent, claim.token, flush=True)


main()
