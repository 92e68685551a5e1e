/* Kernels for Farside's software cards, written in C or C++. ABI version 1.
 *
 * A shared library exports one function, farside_kernels, which gives a table of names and
 * functions; FARSIDE_EXPORT_KERNELS writes it. The library is loaded by a program
 * (SpaceBuilder::kernel_library) or by a card, and its kernels are called by their names:
 *
 *     #include "farside-kernel.h"
 *
 *     static int32_t add_one(farside_context *ctx, const farside_argument *arguments,
 *                            uint32_t count, uint64_t *result)
 *     {
 *         uint64_t word;
 *         if (count != 1 || arguments[0].kind != FARSIDE_WRITE || arguments[0].bytes < 8)
 *             return farside_fail(ctx, "takes one range to write");
 *         int32_t error = farside_load_u64(ctx, arguments[0].word, &word);
 *         if (error)
 *             return error;
 *         *result = word;
 *         return farside_store_u64(ctx, arguments[0].word, word + 1);
 *     }
 *
 *     static const farside_kernel kernels[] = { { "my.add_one", add_one } };
 *     FARSIDE_EXPORT_KERNELS(kernels)
 *
 * Rules
 * - Addresses are those of the program, the same on the host and on every card. A kernel cannot
 *   use them as pointers: it reaches memory through the services below, and only what its
 *   arguments name, and what it has allocated itself (farside_alloc).
 * - A service that returns something other than 0 has failed. The kernel then cleans up and
 *   returns at once, with that value. Every later service fails as well, and the job fails
 *   with the first error whatever the kernel returns.
 * - Services are called from the kernel's own thread, while it runs, and not from the body of
 *   farside_for_each (there only farside_fail and farside_card are allowed).
 * - No exception, longjmp or thread exit leaves a kernel or a body.
 * - A kernel may run on several processing elements at once: no writable static data without
 *   care.
 * - A kernel that computes for long without services calls farside_checkpoint now and then.
 * - A kernel that crashes takes the process of its card with it. That process may be the program
 *   itself; give untried kernels a card in a process of its own.
 */
#ifndef FARSIDE_KERNEL_H
#define FARSIDE_KERNEL_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Version of this interface. Tables of services grow without a new version. */
#define FARSIDE_KERNEL_ABI 1u

/* What services return. A kernel or a body that fails returns any value but 0. */
#define FARSIDE_OK 0
#define FARSIDE_ERROR 1

/* What the services of a card's own memory return besides, without having failed: a kernel that
 * can do without goes on. One that returns it fails with what the card lacks. */
#define FARSIDE_NO_MEMORY 2     /* the card has too few pages that are free */
#define FARSIDE_NO_ADDRESSES 3  /* no place among its addresses is long enough */
#define FARSIDE_NO_OWN_MEMORY 4 /* the card gives no memory of its own (SpaceBuilder::card_window) */
#define FARSIDE_NO_SUCH_MEMORY 5 /* the card has no memory of its own with this number */

/* What an argument is. */
#define FARSIDE_VALUE 0u  /* a plain value of up to eight bytes */
#define FARSIDE_READ 1u   /* memory to read */
#define FARSIDE_WRITE 2u  /* memory to read and write, and nobody else does meanwhile */
#define FARSIDE_SHARED 3u /* words that all use at the same time, by single-word services */

/* What number a value is: farside_argument.bytes of a FARSIDE_VALUE. A kernel that wants the other one of the same
 * size is not given its bits: see farside_is_value. */
#define FARSIDE_INTEGER 1u /* whole, with a sign or without */
#define FARSIDE_FLOAT 2u

typedef struct farside_context farside_context;

typedef struct farside_argument {
    uint32_t kind;    /* FARSIDE_VALUE and so on */
    uint32_t element; /* bytes of one element; of the value itself for a value */
    uint64_t word;    /* address of the first byte; the value's bits, the lowest first */
    uint64_t bytes;   /* length of the memory; of a value FARSIDE_INTEGER or FARSIDE_FLOAT, or 0: not said */
} farside_argument;

/* Whether an argument is a value of so many bytes, and not said to be another number than this. */
static inline int farside_is_value(const farside_argument *argument, uint32_t number, uint32_t bytes)
{
    return argument->kind == FARSIDE_VALUE && argument->element == bytes
           && (argument->bytes == 0 || argument->bytes == number);
}

/* Memory that is asked for: see farside_read, farside_write and farside_part. */
typedef struct farside_range {
    uint64_t address; /* a multiple of element */
    uint64_t bytes;   /* a multiple of element */
    uint32_t element; /* bytes of one element: 1, 2, 4 and so on to 4096 */
    uint32_t access;  /* FARSIDE_READ or FARSIDE_WRITE */
} farside_range;

/* When an allocation gets its memory. */
#define FARSIDE_LAZY 0u  /* each page when it is first touched */
#define FARSIDE_EAGER 1u /* all of it at once, or there is no allocation */
#define FARSIDE_READ_ONLY 2u /* beside one of these (FARSIDE_EAGER | FARSIDE_READ_ONLY): a write fails */

/* What the memories of a card's own are. */
#define FARSIDE_PLAIN_MEMORY 0u /* nothing is said of it */
#define FARSIDE_DDR 1u
#define FARSIDE_HBM 2u
#define FARSIDE_BLOCK_RAM 3u
#define FARSIDE_HOST_MEMORY 4u

/* One of the memories of a card's own: see farside_own_memory. */
typedef struct farside_memory {
    uint32_t kind; /* FARSIDE_DDR and so on */
    uint32_t reserved;
    uint64_t bytes;
    uint64_t free; /* bytes of it that nobody has */
} farside_memory;

/* A vector in the card's own memory that grows while a kernel adds to it; nobody has to know how
 * long it becomes. Begins as FARSIDE_GROWABLE. address and length are to be read, also when a
 * service has failed; all members are the services' to write. */
typedef struct farside_growable {
    uint64_t address; /* of the first element; 0: there is none yet. Changes when it grows */
    uint64_t length;  /* elements that were added */
    uint32_t element; /* bytes of one element */
    uint8_t memory;   /* which of the card's own memories it is in, from 0 on; see FARSIDE_EAGER_IN */
    uint8_t at_once[3];
    uint64_t reserved;
} farside_growable;

/* An empty one, of elements of a type; in the first of the card's own memories, or in that of a number. */
#define FARSIDE_GROWABLE(type) FARSIDE_GROWABLE_IN(type, 0)
#define FARSIDE_GROWABLE_IN(type, memory) { 0, 0, sizeof(type), memory, { 0, 0, 0 }, 0 }

/* For the memory's number, here and of columns: what is reserved has memory at once (FARSIDE_EAGER), twice as much
 * as there are elements at the worst until it is finished; where there is too little, elements are refused before
 * any of them is written. Else a page gets memory when it is first touched, and a kernel whose touch finds none
 * left fails. As in FARSIDE_GROWABLE_IN(double, FARSIDE_EAGER_IN(0)). */
#define FARSIDE_EAGER_IN(memory) ((uint8_t)((memory) | 0x80u))

/* A column of Arrow in the card's own memory: values, or texts, of which some may be null. Begins as
 * FARSIDE_COLUMN or FARSIDE_TEXTS. length is to be read; all members are the services' to write. */
typedef struct farside_column {
    farside_growable values;   /* the values, or the bytes of texts */
    farside_growable offsets;  /* of texts: where each begins */
    farside_growable validity; /* which rows are valid, a bit each; none before the first null */
    uint64_t length;           /* rows that were added */
    uint64_t nulls;
    uint32_t bits;
    uint32_t is_text;
} farside_column;

/* An empty one: of values of a type, and of texts in UTF-8; in the first of the card's own memories, or in
 * that of a number. */
#define FARSIDE_COLUMN(type) FARSIDE_COLUMN_IN(type, 0)
#define FARSIDE_COLUMN_IN(type, memory)                                                   \
    { FARSIDE_GROWABLE_IN(type, memory), FARSIDE_GROWABLE_IN(int32_t, memory),            \
      FARSIDE_GROWABLE_IN(uint8_t, memory), 0, 0, 0, 0 }
#define FARSIDE_TEXTS FARSIDE_TEXTS_IN(0)
#define FARSIDE_TEXTS_IN(memory)                                                          \
    { FARSIDE_GROWABLE_IN(char, memory), FARSIDE_GROWABLE_IN(int32_t, memory),            \
      FARSIDE_GROWABLE_IN(uint8_t, memory), 0, 0, 0, 1 }

/* What a vector has become: the program's (Space::take_over), which a kernel tells of it by writing
 * this where the program looks. */
typedef struct farside_made {
    uint64_t address; /* of the first element; 0 if there is none */
    uint64_t length;  /* elements */
} farside_made;

/* What a column has become (Space::take_over_column). */
typedef struct farside_made_column {
    farside_made values;
    farside_made offsets;
    farside_made validity;
    uint64_t length; /* rows */
} farside_made_column;

/* Works on a piece of each range: elements first to first + count - 1. pieces[i] points to count
 * elements of range i, which are contiguous, and valid until the body returns. A value other than
 * 0 ends farside_for_each, which returns it. The body should end soon: whoever else wants one of
 * its pages waits for it. */
typedef int32_t (*farside_body)(void *user, void *const *pieces, uint64_t first, uint64_t count);

/* What the runtime does for kernels: called by the functions farside_… below. size is the size of
 * the table in bytes; a service that was added later is there if FARSIDE_HAS says so. */
typedef struct farside_services {
    uint32_t size;
    uint32_t reserved;
    int32_t (*load)(farside_context *ctx, uint64_t address, uint32_t bytes, void *value);
    int32_t (*store)(farside_context *ctx, uint64_t address, uint32_t bytes, const void *value);
    int32_t (*fetch_add)(farside_context *ctx, uint64_t address, uint32_t bytes, uint64_t amount,
                         uint64_t *was);
    int32_t (*compare_exchange)(farside_context *ctx, uint64_t address, uint32_t bytes,
                                uint64_t expected, uint64_t desired, uint64_t *was);
    int32_t (*for_each)(farside_context *ctx, const farside_range *ranges, uint32_t count,
                        farside_body body, void *user);
    int32_t (*checkpoint)(farside_context *ctx);
    int32_t (*fail)(farside_context *ctx, const char *message);
    uint32_t (*card)(farside_context *ctx);
    /* Since the second edition. */
    int32_t (*gather)(farside_context *ctx, const uint64_t *addresses, uint32_t bytes,
                      uint64_t count, void *values);
    int32_t (*scatter)(farside_context *ctx, const uint64_t *addresses, uint32_t bytes,
                       uint64_t count, const void *values);
    int32_t (*fetch_add_all)(farside_context *ctx, const uint64_t *addresses, uint32_t bytes,
                             uint64_t count, const uint64_t *amounts, uint64_t *was);
    int32_t (*compare_exchange_all)(farside_context *ctx, const uint64_t *addresses,
                                    uint32_t bytes, uint64_t count, const uint64_t *expected,
                                    const uint64_t *desired, uint64_t *was);
    /* Since the third edition. */
    int32_t (*alloc)(farside_context *ctx, uint64_t bytes, uint32_t backing, uint64_t *address);
    int32_t (*realloc)(farside_context *ctx, uint64_t *address, uint64_t bytes);
    int32_t (*free)(farside_context *ctx, uint64_t address);
    int32_t (*extend)(farside_context *ctx, farside_growable *growable, const void *values,
                      uint64_t count);
    int32_t (*finish)(farside_context *ctx, farside_growable *growable, farside_made *made);
    int32_t (*add_values)(farside_context *ctx, farside_column *column, const void *values,
                          const uint8_t *valid, uint64_t count);
    int32_t (*add_texts)(farside_context *ctx, farside_column *column, const char *bytes,
                         const uint32_t *lengths, const uint8_t *valid, uint64_t count);
    int32_t (*finish_column)(farside_context *ctx, farside_column *column,
                             farside_made_column *made);
    /* Since the fourth edition. */
    int32_t (*alloc_in)(farside_context *ctx, uint32_t memory, uint64_t bytes, uint32_t options,
                        uint64_t *address);
    int32_t (*own_memory)(farside_context *ctx, uint32_t number, farside_memory *memory);
} farside_services;

/* The processing element that a kernel runs on. What follows the table is the runtime's. */
struct farside_context {
    const farside_services *services;
};

/* A kernel. arguments are count records (none to be read if count is 0); *result, 0 at first, is
 * what the call gives. Returns 0 if all went well. */
typedef int32_t (*farside_function)(farside_context *ctx, const farside_argument *arguments,
                                    uint32_t count, uint64_t *result);

typedef struct farside_kernel {
    const char *name; /* 1 to 255 bytes of UTF-8, like "mine.kernel"; no other kernel has it */
    farside_function function;
} farside_kernel;

/* What a library gives. It stays as it is for as long as the process lives. */
typedef struct farside_kernel_library {
    uint32_t abi_version; /* FARSIDE_KERNEL_ABI */
    uint32_t count;       /* at most 1024 */
    const farside_kernel *kernels;
} farside_kernel_library;

#if defined(__GNUC__)
#define FARSIDE_PUBLIC __attribute__((visibility("default")))
#else
#define FARSIDE_PUBLIC
#endif

/* The function that a library exports: its table for a version of this interface, or NULL if it
 * was not written for that version. */
FARSIDE_PUBLIC const farside_kernel_library *farside_kernels(uint32_t abi_version);

/* Writes farside_kernels for an array of farside_kernel. */
#define FARSIDE_EXPORT_KERNELS(array)                                                \
    const farside_kernel_library *farside_kernels(uint32_t abi_version)              \
    {                                                                                \
        static const farside_kernel_library library = {                              \
            FARSIDE_KERNEL_ABI, (uint32_t)(sizeof(array) / sizeof((array)[0])), array \
        };                                                                           \
        return abi_version == FARSIDE_KERNEL_ABI ? &library : NULL;                  \
    }

/* Whether the runtime has a service. Those of this header's first edition are always there. */
#define FARSIDE_HAS(ctx, service) \
    (offsetof(farside_services, service) < (ctx)->services->size)

/* Single words of 1, 2, 4 or 8 bytes. A word does not cross a page; one that is aligned to its
 * size is never torn. This is how to follow pointers. */

static inline int32_t farside_load(farside_context *ctx, uint64_t address, uint32_t bytes,
                                   void *value)
{
    return ctx->services->load(ctx, address, bytes, value);
}

static inline int32_t farside_store(farside_context *ctx, uint64_t address, uint32_t bytes,
                                    const void *value)
{
    return ctx->services->store(ctx, address, bytes, value);
}

static inline int32_t farside_load_u32(farside_context *ctx, uint64_t address, uint32_t *value)
{
    return ctx->services->load(ctx, address, 4, value);
}

static inline int32_t farside_load_u64(farside_context *ctx, uint64_t address, uint64_t *value)
{
    return ctx->services->load(ctx, address, 8, value);
}

static inline int32_t farside_store_u32(farside_context *ctx, uint64_t address, uint32_t value)
{
    return ctx->services->store(ctx, address, 4, &value);
}

static inline int32_t farside_store_u64(farside_context *ctx, uint64_t address, uint64_t value)
{
    return ctx->services->store(ctx, address, 8, &value);
}

/* Atomic operations on aligned words of 4 or 8 bytes, for all agents. *was becomes what the word
 * was before; was may be NULL. */

/* Adds, wrapping. */
static inline int32_t farside_fetch_add(farside_context *ctx, uint64_t address, uint32_t bytes,
                                        uint64_t amount, uint64_t *was)
{
    return ctx->services->fetch_add(ctx, address, bytes, amount, was);
}

/* Replaces the word if it is as expected. */
static inline int32_t farside_compare_exchange(farside_context *ctx, uint64_t address,
                                               uint32_t bytes, uint64_t expected,
                                               uint64_t desired, uint64_t *was)
{
    return ctx->services->compare_exchange(ctx, address, bytes, expected, desired, was);
}

/* Runs of words: the services above for count words, wherever they are, and several times as fast
 * where they are far apart. addresses[i] is where word i is; all have as many bytes. The words are
 * accessed in this order, each as if alone: one that is named twice is accessed twice. Where a
 * service fails, the words before the one that its error names are done, those behind it are not.
 * No array of a run may be missing, unless count is 0, but for was, which may be NULL.
 *
 * A card of the first edition has no such services: FARSIDE_HAS(ctx, gather). */

/* values[i] becomes word i. */
static inline int32_t farside_gather(farside_context *ctx, const uint64_t *addresses,
                                     uint32_t bytes, uint64_t count, void *values)
{
    return ctx->services->gather(ctx, addresses, bytes, count, values);
}

/* Word i becomes values[i]; of a word that is named twice the later value stays. */
static inline int32_t farside_scatter(farside_context *ctx, const uint64_t *addresses,
                                      uint32_t bytes, uint64_t count, const void *values)
{
    return ctx->services->scatter(ctx, addresses, bytes, count, values);
}

/* Adds amounts[i] to word i, wrapping. */
static inline int32_t farside_fetch_add_all(farside_context *ctx, const uint64_t *addresses,
                                            uint32_t bytes, uint64_t count,
                                            const uint64_t *amounts, uint64_t *was)
{
    return ctx->services->fetch_add_all(ctx, addresses, bytes, count, amounts, was);
}

/* Replaces word i by desired[i] if it is expected[i]. */
static inline int32_t farside_compare_exchange_all(farside_context *ctx,
                                                   const uint64_t *addresses, uint32_t bytes,
                                                   uint64_t count, const uint64_t *expected,
                                                   const uint64_t *desired, uint64_t *was)
{
    return ctx->services->compare_exchange_all(ctx, addresses, bytes, count, expected, desired,
                                               was);
}

/* All the memory of an argument, to be read. */
static inline farside_range farside_read(const farside_argument *argument)
{
    farside_range range = { argument->word, argument->bytes, argument->element, FARSIDE_READ };
    return range;
}

/* All the memory of an argument, to be read and written. */
static inline farside_range farside_write(const farside_argument *argument)
{
    farside_range range = { argument->word, argument->bytes, argument->element, FARSIDE_WRITE };
    return range;
}

/* count elements of a range, from element first on. The caller knows that they are within. */
static inline farside_range farside_part(farside_range range, uint64_t first, uint64_t count)
{
    range.address += first * range.element;
    range.bytes = count * range.element;
    return range;
}

/* Streams over up to 8 ranges in lock step, at the speed of plain memory: body works on contiguous
 * pieces, in order, all ranges' pieces resident together, at most 2 MiB of them. Ranges have
 * equally many elements. Those that are written overlap no other; memory that was lent as
 * FARSIDE_SHARED is reached by single words instead. */
static inline int32_t farside_for_each(farside_context *ctx, const farside_range *ranges,
                                       uint32_t count, farside_body body, void *user)
{
    return ctx->services->for_each(ctx, ranges, count, body, user);
}

/* The card's own memory. Its addresses are used as those of arguments are, by words and by
 * farside_for_each, and only by the kernel that has allocated it; what it has not freed or finished
 * when it ends, however it ends, is freed. New memory is zero. These services return
 * FARSIDE_NO_MEMORY, FARSIDE_NO_ADDRESSES or FARSIDE_NO_OWN_MEMORY where the card lacks something,
 * and nothing has changed then. What makes no sense, like 0 bytes or an address that was not
 * allocated by this kernel or is freed, is an error that stays.
 *
 * A card of the second edition has no such services: FARSIDE_HAS(ctx, alloc). */

/* Pages for so many bytes; backing is FARSIDE_LAZY or FARSIDE_EAGER. */
static inline int32_t farside_alloc(farside_context *ctx, uint64_t bytes, uint32_t backing,
                                    uint64_t *address)
{
    return ctx->services->alloc(ctx, bytes, backing, address);
}

/* Pages for so many bytes in the memory with this number of those that the card has of its own; options is
 * FARSIDE_LAZY or FARSIDE_EAGER, and FARSIDE_READ_ONLY with either. They stay in that memory, which may be
 * full while others have room. Returns FARSIDE_NO_SUCH_MEMORY where there is none.
 *
 * A card of the third edition has one memory alone, and no such service: FARSIDE_HAS(ctx, alloc_in). */
static inline int32_t farside_alloc_in(farside_context *ctx, uint32_t memory, uint64_t bytes,
                                       uint32_t options, uint64_t *address)
{
    return ctx->services->alloc_in(ctx, memory, bytes, options, address);
}

/* What the memory with this number is: 0 is the first; behind the last it returns FARSIDE_NO_SUCH_MEMORY. */
static inline int32_t farside_own_memory(farside_context *ctx, uint32_t number,
                                         farside_memory *memory)
{
    return ctx->services->own_memory(ctx, number, memory);
}

/* Another size for the allocation at *address, which may move, within its memory: what was in it stays, what
 * is new is FARSIDE_LAZY. */
static inline int32_t farside_realloc(farside_context *ctx, uint64_t *address, uint64_t bytes)
{
    return ctx->services->realloc(ctx, address, bytes);
}

/* Gives the allocation at address back. */
static inline int32_t farside_free(farside_context *ctx, uint64_t address)
{
    return ctx->services->free(ctx, address);
}

/* Adds count elements to a vector. Where it fails those that were added before are still there, and
 * perhaps some of these: see its length. */
static inline int32_t farside_extend(farside_context *ctx, farside_growable *growable,
                                     const void *values, uint64_t count)
{
    return ctx->services->extend(ctx, growable, values, count);
}

/* Makes a vector the program's and empties it. *made is where it is: the program gets it from there,
 * once; what it does not take is its own all the same until its space is closed. */
static inline int32_t farside_finish(farside_context *ctx, farside_growable *growable,
                                     farside_made *made)
{
    return ctx->services->finish(ctx, growable, made);
}

/* Adds count rows to a column of values, all or none. Those are null whose valid is 0; NULL: none
 * is. A null row has a value all the same, which nobody reads. */
static inline int32_t farside_add_values(farside_context *ctx, farside_column *column,
                                         const void *values, const uint8_t *valid,
                                         uint64_t count)
{
    return ctx->services->add_values(ctx, column, values, valid, count);
}

/* The same for texts: bytes are those of all, one behind the other, and lengths those of each, in
 * bytes. A column has at most 2^31 - 1 bytes of them. */
static inline int32_t farside_add_texts(farside_context *ctx, farside_column *column,
                                        const char *bytes, const uint32_t *lengths,
                                        const uint8_t *valid, uint64_t count)
{
    return ctx->services->add_texts(ctx, column, bytes, lengths, valid, count);
}

/* Makes a column the program's and empties it. *made is where it is. */
static inline int32_t farside_finish_column(farside_context *ctx, farside_column *column,
                                            farside_made_column *made)
{
    return ctx->services->finish_column(ctx, column, made);
}

/* Writes a farside_made or farside_made_column to where the program looks: to address, in memory that
 * it has lent by FARSIDE_WRITE. */
static inline int32_t farside_tell(farside_context *ctx, uint64_t address, const void *made,
                                   uint64_t bytes)
{
    for (uint64_t at = 0; at < bytes; at += 8) {
        int32_t error = ctx->services->store(ctx, address + at, 8, (const char *)made + at);
        if (error)
            return error;
    }
    return FARSIDE_OK;
}

/* What was added to a vector so far, until more is added, to be read and written. */
static inline farside_range farside_grown(const farside_growable *growable)
{
    farside_range range = { growable->address, growable->length * growable->element,
                            growable->element, FARSIDE_WRITE };
    return range;
}

/* Fails if the kernel was cancelled or its time is up. */
static inline int32_t farside_checkpoint(farside_context *ctx)
{
    return ctx->services->checkpoint(ctx);
}

/* Fails the job with a message (UTF-8, its first 4096 bytes); returns FARSIDE_ERROR, so that
 * `return farside_fail(ctx, "why");` ends the kernel. An earlier error stays. */
static inline int32_t farside_fail(farside_context *ctx, const char *message)
{
    return ctx->services->fail(ctx, message);
}

/* Number of the card: 0, 1 and so on. */
static inline uint32_t farside_card(farside_context *ctx)
{
    return ctx->services->card(ctx);
}

#ifdef __cplusplus
}
#endif

#endif
