/* A placement scheme of one's own for Farside, written in C or C++. ABI version 1.
 *
 * When somebody wants a page that it does not have, the placement scheme says what is done: move the
 * page, copy it, or map it where it is. A shared library exports one function,
 * farside_scheme_export, which gives a table; FARSIDE_EXPORT_SCHEME writes it. The file stands
 * wherever a scheme's name does, with parameters behind a colon:
 *
 *     farside sim --scheme on-touch,./libmine.so,./libmine.so:after=3
 *
 * This is a whole scheme: a page moves to whoever writes it, readers get copies.
 *
 *     #include "farside-scheme.h"
 *
 *     static void on_fault(void *state, const farside_fault *fault, farside_decision *answer)
 *     {
 *         (void)state;
 *         answer->action = fault->write ? FARSIDE_MIGRATE : FARSIDE_DUPLICATE;
 *     }
 *
 *     static const farside_scheme scheme = {
 *         .abi_version = FARSIDE_SCHEME_ABI, .size = sizeof(farside_scheme),
 *         .name = "mine", .about = "readers get copies, writers the page", .on_fault = on_fault,
 *     };
 *     FARSIDE_EXPORT_SCHEME(scheme)
 *
 * `farside new scheme NAME` writes one that learns, has a parameter, and builds.
 *
 * Units
 * - A page is 4096 bytes; pages are given by number: address / 4096. Ranges are a first page and a
 *   count of pages. A group is 16 pages (64 KiB), or fewer at the ends of an allocation.
 * - Times are nanoseconds since the space or the simulation began.
 * - Memories and agents have the same numbers: FARSIDE_HOST (0) is host memory and the CPU,
 *   FARSIDE_CARD(n) is card n, n from 0 to 15. A set of them is a word with the bits of its members:
 *   farside_has.
 *
 * Rules
 * - The same scheme runs live and in simulated time. It sees pages, never their bytes.
 * - Functions of one scheme are called one at a time, not always by the same thread. Several may be
 *   made of one library: what a scheme learns is in its state or in its notes, not in static data.
 * - Whatever a scheme answers, no data is lost. An answer that makes no sense (an action that there
 *   is not, a range outside the allocation) stands for the default: the page moves to whoever
 *   asks. Live, the first one is named on standard error; simulated, the run fails with it.
 * - A call that has not returned after 10 s (FARSIDE_SCHEME_SECONDS) is named, and the process ends.
 * - Simulated, a scheme runs in a process of its own: one that crashes or exits loses one run. Live it runs in
 *   the program, and a crash is the program's.
 * - Live, a thread of the program may wait inside malloc for the page that is asked about: on_fault
 *   and on_counter do not allocate, or only in programs whose signal handlers leave shared memory
 *   alone. Notes never allocate in them.
 * - No exception, longjmp or thread exit leaves a function.
 * - The library is never unloaded. What the table points to stays as it is.
 */
#ifndef FARSIDE_SCHEME_H
#define FARSIDE_SCHEME_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. Records and the table grow at their ends without a new version. */
#define FARSIDE_SCHEME_ABI 1u

/* Agents and memories. */
#define FARSIDE_HOST 0u
#define FARSIDE_CARD(n) ((uint32_t)(n) + 1u)
#define FARSIDE_NOWHERE 255u /* owner of a page that nobody has written */

/* What to do (farside_decision.action). */
#define FARSIDE_MIGRATE 0u     /* move the page to the agent; everybody else loses it */
#define FARSIDE_DUPLICATE 1u   /* read: a copy for the agent; write: its copy becomes the only one */
#define FARSIDE_MAP_REMOTE 2u  /* leave it and map it over the bus; where that cannot be it moves */
#define FARSIDE_MAP_ON_HOST 3u /* move it to the host and map it there; the same */

/* How far it reaches (farside_decision.scope). */
#define FARSIDE_PAGE 0u   /* the page; of a notice: its group */
#define FARSIDE_GROUP 1u  /* its 16 pages, inside the allocation */
#define FARSIDE_RANGE 2u  /* first and pages of the decision, inside the allocation */
#define FARSIDE_OBJECT 3u /* the whole allocation */

/* Why, for reports (farside_decision.reason). */
#define FARSIDE_DEMAND 0u   /* somebody faulted on it */
#define FARSIDE_COUNTER 1u  /* it was accessed often over the bus */
#define FARSIDE_COLLAPSE 2u /* a write took other copies away */
#define FARSIDE_PREFETCH 3u /* it lies near a fault */
#define FARSIDE_THRASH 4u   /* agents fought over it */

/* farside_decision.flags */
#define FARSIDE_FIRM 1u  /* pages beyond the one asked for also leave cards that run a kernel */
#define FARSIDE_LENDS 2u /* a page that is read comes with the right to write, where may_lend */

/* How a page is placed, for statistics (mode). */
#define FARSIDE_MODE_ON_TOUCH 0u
#define FARSIDE_MODE_ACCESS_COUNTER 1u
#define FARSIDE_MODE_DUPLICATION 2u

/* Kinds of parameters. */
#define FARSIDE_NUMBER 0u /* a whole number from least to most */
#define FARSIDE_SWITCH 1u /* on (1) or off (0) */

/* A parameter: given as key=value, listed by `farside schemes ./libmine.so`. */
typedef struct farside_parameter {
    const char *key;   /* lower-case letters, digits, - and _; at most 32 */
    const char *about; /* what it does, with its unit, in a line */
    uint32_t kind;     /* FARSIDE_NUMBER or FARSIDE_SWITCH */
    uint32_t standard; /* what it is where nothing is said */
    uint32_t least;    /* of a number */
    uint32_t most;     /* of a number */
} farside_parameter;

/* A page at the moment an agent asks for it. */
typedef struct farside_fault {
    uint64_t now_ns;
    uint64_t page;
    uint64_t object_first; /* the allocation that it belongs to */
    uint64_t object_pages;
    uint64_t *note;        /* the scheme's word about this page; NULL without .notes */
    uint64_t bring_ns;     /* what it takes to bring a page now; 0: nobody knows, as on live machines */
    uint64_t far_ns;       /* an access to a line of another memory; 0: nobody knows */
    uint32_t agent;        /* who asks */
    uint32_t owner;        /* the memory that it is in, or FARSIDE_NOWHERE */
    uint32_t copies;       /* set of memories with a valid copy */
    uint32_t mappers;      /* set of agents that have it mapped */
    uint32_t room;         /* frames that are free in the agent's memory; 2^32 - 1: the host */
    uint8_t write;         /* 1: to write, 0: to read */
    uint8_t protection;    /* 1: it has it mapped, for reading only */
    uint8_t again;         /* 1: asked about this very fault before; count it once */
    uint8_t may_lend;      /* 1: FARSIDE_LENDS would be heeded */
} farside_fault;

/* An answer. It comes filled in with the default: move the page, this page alone, on demand. */
typedef struct farside_decision {
    uint32_t action;
    uint32_t scope;
    uint32_t reason;
    uint32_t flags;
    uint64_t first; /* of FARSIDE_RANGE */
    uint64_t pages;
} farside_decision;

/* A group of pages that an agent has accessed over the bus as often as the counter's threshold. */
typedef struct farside_notice {
    uint64_t now_ns;
    uint64_t first;
    uint64_t pages;
    uint64_t *notes;     /* of first, first + 1, ...; NULL without .notes or outside allocations */
    uint64_t bring_ns;   /* as of a fault */
    uint64_t far_ns;
    uint32_t agent;
    uint32_t count;      /* accesses */
} farside_notice;

/* A move that the scheme wants by itself. */
typedef struct farside_move {
    uint64_t first;
    uint64_t pages;
    uint32_t to;     /* a memory */
    uint32_t reason;
} farside_move;

/* How often a card has accessed a page since the last samples, wherever the page is. */
typedef struct farside_sample {
    uint64_t page;
    uint32_t agent;
    uint32_t accesses;
} farside_sample;

/* The scheme. Only abi_version, size, name, about and on_fault must be there; the rest may be 0. */
typedef struct farside_scheme {
    uint32_t abi_version; /* FARSIDE_SCHEME_ABI */
    uint32_t size;        /* sizeof(farside_scheme) */
    const char *name;     /* as tables show it: letters, digits, - and _; at most 32 */
    const char *about;    /* what it does, in a line */
    const farside_parameter *parameters;
    uint32_t parameter_count; /* at most 32 */
    uint32_t notes;           /* 1: keep a word about each page for the scheme, 0 when it is allocated */

    /* Pages of an aligned run for which an answer holds that are alike in all a fault says but page
     * and note: 0 or 1, another power of two, or UINT64_MAX. */
    uint64_t grain;

    /* Makes a scheme: values are those of the parameters, in their order. NULL refuses, and *why
     * may say why. Without it the state is NULL. */
    void *(*create)(const uint32_t *values, const char **why);
    void (*destroy)(void *state);

    /* An agent faulted. */
    void (*on_fault)(void *state, const farside_fault *fault, farside_decision *answer);

    /* A counter reached its threshold: writes at most capacity answers, for ranges that do not overlap,
     * and gives their number. Each comes filled in with: move the group, by the counter. */
    uint32_t (*on_counter)(void *state, const farside_notice *notice, farside_decision *answers,
                           uint32_t capacity);

    /* Pages were allocated, or freed: their notes are gone already. */
    void (*on_alloc)(void *state, uint64_t first, uint64_t pages);
    void (*on_free)(void *state, uint64_t first, uint64_t pages);

    /* A card that had these pages on loan (FARSIDE_LENDS) has written all of them, or none. */
    void (*on_written)(void *state, uint64_t first, uint64_t pages, uint32_t written);

    /* How a page is placed now: FARSIDE_MODE_... */
    uint32_t (*mode)(void *state, uint64_t page, const uint64_t *note);

    /* Asked once, after create: ns between two on_samples, at least 1000. Only a simulated machine
     * has samples: ascending by page and agent, without zeros. Gives the number of moves written. */
    uint64_t (*sample_every_ns)(void *state);
    uint32_t (*on_samples)(void *state, uint64_t now_ns, const farside_sample *samples,
                           uint64_t count, farside_move *moves, uint32_t capacity);

    /* What the state has learnt, as bytes that the same library understands: gives how many there are, and writes
     * them if they are not more than capacity. Notes are stored without it. A scheme that has create and
     * not these cannot be stored. */
    uint64_t (*save)(void *state, uint8_t *bytes, uint64_t capacity);
    int32_t (*restore)(void *state, const uint8_t *bytes, uint64_t count); /* 0: done */
} farside_scheme;

/* Whether a set has an agent or a memory. */
static inline int farside_has(uint32_t set, uint32_t member)
{
    return member < 32 && ((set >> member) & 1u);
}

/* The set without one of its members. */
static inline uint32_t farside_without(uint32_t set, uint32_t member)
{
    return member < 32 ? set & ~((uint32_t)1 << member) : set;
}

/* How many members a set has. */
static inline uint32_t farside_count(uint32_t set)
{
    uint32_t count = 0;
    for (; set; set &= set - 1)
        count++;
    return count;
}

#if defined(__GNUC__)
#define FARSIDE_SCHEME_PUBLIC __attribute__((visibility("default")))
#else
#define FARSIDE_SCHEME_PUBLIC
#endif

#ifdef __cplusplus
#define FARSIDE_SCHEME_LINKAGE extern "C"
#else
#define FARSIDE_SCHEME_LINKAGE
#endif

/* Exports a table that stays where it is. Who asks for another version gets nothing. */
#define FARSIDE_EXPORT_SCHEME(table)                                                             \
    FARSIDE_SCHEME_LINKAGE FARSIDE_SCHEME_PUBLIC const farside_scheme *farside_scheme_export(    \
        uint32_t abi_version);                                                                   \
    FARSIDE_SCHEME_LINKAGE FARSIDE_SCHEME_PUBLIC const farside_scheme *farside_scheme_export(    \
        uint32_t abi_version)                                                                    \
    {                                                                                            \
        return abi_version == FARSIDE_SCHEME_ABI ? &(table) : NULL;                              \
    }

#ifdef __cplusplus
}
#endif

#endif
