/* A placement scheme for Farside: readers get copies and writers the page, until cards have taken a
 * page from each other by writing `after` times. From then on it stays where it is and is mapped. */
#include "farside-scheme.h"

#include <stdlib.h>

struct state {
    uint32_t after;
};

/* Parameters are given behind the name: lib__name__.so:after=2 */
static const farside_parameter parameters[] = {
    { "after", "foreign writes after which a page stays", FARSIDE_NUMBER, 1, 1, 1000 },
};

static void *create(const uint32_t *values, const char **why)
{
    struct state *state = malloc(sizeof *state);
    if (!state) {
        *why = "there is no memory";
        return NULL;
    }
    state->after = values[0];
    return state;
}

/* The note of a page counts its foreign writes. */
static void on_fault(void *at, const farside_fault *fault, farside_decision *answer)
{
    const struct state *state = at;
    uint32_t cards = farside_without(fault->copies, FARSIDE_HOST);
    uint32_t others = farside_without(cards, fault->agent);
    if (*fault->note >= state->after && farside_count(fault->copies) == 1 && others) {
        answer->action = FARSIDE_MAP_REMOTE;
        return;
    }
    if (fault->write && others && !fault->again)
        ++*fault->note;
    answer->action = fault->write ? FARSIDE_MIGRATE : FARSIDE_DUPLICATE;
    if (fault->write && farside_count(fault->copies) > 1)
        answer->reason = FARSIDE_COLLAPSE;
}

/* For the statistics of `farside sim`. */
static uint32_t mode(void *at, uint64_t page, const uint64_t *note)
{
    const struct state *state = at;
    (void)page;
    return *note >= state->after ? FARSIDE_MODE_ACCESS_COUNTER : FARSIDE_MODE_DUPLICATION;
}

static const farside_scheme scheme = {
    .abi_version = FARSIDE_SCHEME_ABI,
    .size = sizeof(farside_scheme),
    .name = "__name__",
    .about = "reads copy, writes move, pages that cards fight over are mapped",
    .parameters = parameters,
    .parameter_count = sizeof parameters / sizeof *parameters,
    .notes = 1,
    .create = create,
    .destroy = free,
    .on_fault = on_fault,
    .mode = mode,
};
FARSIDE_EXPORT_SCHEME(scheme)
