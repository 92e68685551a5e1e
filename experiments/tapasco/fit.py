#!/usr/bin/env python3
"""Fits the constants of the simulated cards to Table II and to the user-managed rows of Table I of the
multi-FPGA SVM paper. The on-demand rows are not in this file. Python's standard library only.

    python3 experiments/tapasco/fit.py        prints each constant as shipped, the best one near it,
                                              and the mean and largest error with both
"""

SIZES = [1, 8, 32, 256, 1024, 8192]  # pages
MIGRATION = {  # Table II, in µs
    "bounce": [16.3, 24.6, 50.4, 310, 1080, 8420],
    "peer": [11.6, 16.4, 36.4, 220, 810, 6300],
    "ethernet": [12.7, 18.5, 37.5, 210, 760, 5970],
}
USER_MANAGED = {  # Table I, UMPM, in µs
    "bounce": [38.2, 47.4, 110, 610, 2180, 16900],
    "peer": [27.0, 41.2, 90, 530, 1910, 14800],
    "ethernet": [27.6, 42.1, 100, 520, 1860, 14500],
}

# In µs. What only sums matter of is one constant here: setup and finalize, launch and wake-up.
SHIPPED = {
    "software": 2.9 + 2.8, "software_page": 0.043 + 0.327, "wake": 11.5,
    "bounce": 10.1, "bounce_page": 0.663, "peer": 5.0, "peer_page": 0.403,
    "ethernet": 6.6, "ethernet_page": 0.36492,
    "launch": 3.9, "update_page": 1.05, "nap": 10.0,
}


def migration(c, way, pages):
    total, most = 0.0, 1024 if way == "bounce" else 131072
    while pages > 0:
        n = min(pages, most)
        waits = 2 if way == "bounce" else 1
        total += c["software"] + c["software_page"] * n + c[way] + c[way + "_page"] * n
        total += waits * c["wake"] if n >= 128 else 0.0
        pages -= n
    return total


def user_managed(c, way, pages):
    nap = c["nap"] if pages >= 16 else 0.0
    return migration(c, way, pages) + c["launch"] + c["wake"] + nap + c["update_page"] * pages


def errors(c):
    for table, model in [(MIGRATION, migration), (USER_MANAGED, user_managed)]:
        for way, times in table.items():
            for pages, time in zip(SIZES, times):
                yield model(c, way, pages) / time - 1


def cost(c):
    return sum(e * e for e in errors(c))


def fit(start):
    best, step = dict(start), 0.1
    while step > 1e-4:
        moved = False
        for key in best:
            for factor in (1 + step, 1 / (1 + step)):
                tried = dict(best, **{key: best[key] * factor})
                if cost(tried) < cost(best):
                    best, moved = tried, True
        if not moved:
            step /= 2
    return best


def say(name, c):
    found = [100 * abs(e) for e in errors(c)]
    first, second = found[:18], found[18:]
    print(f"{name:8} Table II: mean {sum(first) / 18:.1f} %, largest {max(first):.1f} %; "
          f"user-managed: mean {sum(second) / 18:.1f} %, largest {max(second):.1f} %")


if __name__ == "__main__":
    fitted = fit(SHIPPED)
    for key, value in SHIPPED.items():
        print(f"{key:14} {value:8.3f} {fitted[key]:8.3f}")
    say("shipped", SHIPPED)
    say("best", fitted)
