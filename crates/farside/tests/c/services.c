/* A kernel for each service, and for each way to use one wrongly. The first argument of most is
 * memory, the values behind it say what to do with it. */
#include "farside-kernel.h"

#define KERNEL(name)                                                                       \
    static int32_t name(farside_context *ctx, const farside_argument *arguments, uint32_t count, \
                        uint64_t *result)

/* (memory, value address, value bytes): loads a word, of any width. */
KERNEL(load)
{
    if (count != 3)
        return farside_fail(ctx, "takes 3 arguments");
    return farside_load(ctx, arguments[1].word, (uint32_t)arguments[2].word, result);
}

/* (memory, value address, value bytes, value word): stores one. */
KERNEL(store)
{
    *result = count;
    return farside_store(ctx, arguments[1].word, (uint32_t)arguments[2].word, &arguments[3].word);
}

/* (memory, value address, value bytes, value amount): adds; gives what it was. */
KERNEL(fetch_add)
{
    (void)count;
    return farside_fetch_add(ctx, arguments[1].word, (uint32_t)arguments[2].word,
                             arguments[3].word, result);
}

/* (memory, value address, value bytes, value expected, value desired): gives what it was. */
KERNEL(compare_exchange)
{
    (void)count;
    return farside_compare_exchange(ctx, arguments[1].word, (uint32_t)arguments[2].word,
                                    arguments[3].word, arguments[4].word, result);
}

/* (memory): passes NULL where a place for a word is needed. */
KERNEL(null_value)
{
    (void)count, (void)result;
    return farside_load(ctx, arguments[0].word, 8, NULL);
}

KERNEL(null_body)
{
    farside_range range = farside_read(&arguments[0]);
    (void)count, (void)result;
    return farside_for_each(ctx, &range, 1, NULL, NULL);
}

struct seen {
    farside_context *ctx;
    uint64_t pieces, elements, next, sum;
    const farside_argument *arguments;
    uint32_t count;
};

/* Adds up the first range, of u64, and writes it, one more each, to the second if there is one. */
static int32_t stream_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    struct seen *seen = user;
    const uint64_t *from = pieces[0];
    if (first != seen->next)
        return farside_fail(seen->ctx, "pieces are not in order");
    if (count * 8 * seen->count > 2u << 20)
        return farside_fail(seen->ctx, "pieces are too large");
    for (uint64_t i = 0; i < count; i++) {
        seen->sum += from[i];
        if (seen->count > 1)
            ((uint64_t *)pieces[1])[i] = from[i] + 1;
    }
    seen->pieces++;
    seen->elements += count;
    seen->next = first + count;
    return FARSIDE_OK;
}

/* (read u64 from[, write u64 to]): the sum. */
KERNEL(stream)
{
    farside_range ranges[2];
    struct seen seen = { ctx, 0, 0, 0, 0, arguments, count };
    ranges[0] = farside_read(&arguments[0]);
    if (count > 1)
        ranges[1] = farside_write(&arguments[1]);
    int32_t error = farside_for_each(ctx, ranges, count, stream_piece, &seen);
    if (error)
        return error;
    if (seen.elements != arguments[0].bytes / 8)
        return farside_fail(ctx, "pieces do not cover the range");
    *result = seen.sum;
    return FARSIDE_OK;
}

/* (read u64 range, value first, value count): the sum of a part. */
KERNEL(part)
{
    struct seen seen = { ctx, 0, 0, 0, 0, arguments, 1 };
    farside_range range = farside_part(farside_read(&arguments[0]), arguments[1].word,
                                       arguments[2].word);
    int32_t error = farside_for_each(ctx, &range, 1, stream_piece, &seen);
    (void)count;
    *result = seen.sum;
    return error;
}

/* (memory, value access, value ranges): asks for the same memory so many times. */
KERNEL(ask)
{
    farside_range ranges[16];
    struct seen seen = { ctx, 0, 0, 0, 0, arguments, count };
    for (int i = 0; i < 16; i++) {
        ranges[i] = farside_read(&arguments[0]);
        ranges[i].access = (uint32_t)arguments[1].word;
    }
    (void)result;
    seen.count = 1;
    return farside_for_each(ctx, ranges, (uint32_t)arguments[2].word, stream_piece, &seen);
}

static int32_t nested_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    struct seen *seen = user;
    uint64_t word;
    (void)pieces, (void)first, (void)count;
    seen->pieces++;
    /* It goes on as if nothing were wrong. */
    (void)farside_load_u64(seen->ctx, seen->arguments[0].word, &word);
    return FARSIDE_OK;
}

/* (read u64): calls a service from a body, and forgets the error. */
KERNEL(nested)
{
    struct seen seen = { ctx, 0, 0, 0, 0, arguments, count };
    farside_range range = farside_read(&arguments[0]);
    int32_t error = farside_for_each(ctx, &range, 1, nested_piece, &seen);
    (void)result;
    if (!error || seen.pieces != 1)
        return farside_fail(ctx, "a nested service was served");
    return FARSIDE_OK;
}

static int32_t stop_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    struct seen *seen = user;
    (void)pieces, (void)first, (void)count;
    seen->pieces++;
    return -7;
}

/* (read u64): its body gives up with a code. */
KERNEL(stop)
{
    struct seen seen = { ctx, 0, 0, 0, 0, arguments, count };
    farside_range range = farside_read(&arguments[0]);
    int32_t error = farside_for_each(ctx, &range, 1, stop_piece, &seen);
    (void)result;
    return seen.pieces == 1 ? error : farside_fail(ctx, "it went on");
}

static int32_t fail_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    struct seen *seen = user;
    (void)pieces, (void)first, (void)count;
    (void)farside_fail(seen->ctx, "from the body");
    seen->pieces++;
    return FARSIDE_OK;
}

/* (read u64): its body fails the job and forgets to stop. */
KERNEL(fail_in_body)
{
    struct seen seen = { ctx, 0, 0, 0, 0, arguments, count };
    farside_range range = farside_read(&arguments[0]);
    int32_t error = farside_for_each(ctx, &range, 1, fail_piece, &seen);
    (void)result;
    return error && seen.pieces == 1 ? FARSIDE_OK : farside_fail(ctx, "it went on");
}

/* (): fails twice and says that all is well. */
KERNEL(ignore)
{
    (void)arguments, (void)count;
    *result = 99;
    (void)farside_fail(ctx, "the first");
    (void)farside_fail(ctx, "the second");
    if (farside_checkpoint(ctx) == FARSIDE_OK)
        return farside_fail(ctx, "a service works after an error");
    return FARSIDE_OK;
}

KERNEL(null_message)
{
    (void)arguments, (void)count, (void)result;
    return farside_fail(ctx, NULL);
}

KERNEL(long_message)
{
    static char message[8192];
    (void)arguments, (void)count, (void)result;
    for (unsigned i = 0; i + 1 < sizeof message; i++)
        message[i] = 'x';
    message[0] = (char)0xff; /* no UTF-8 */
    return farside_fail(ctx, message);
}

/* (): a code without a reason. */
KERNEL(code)
{
    (void)ctx, (void)arguments, (void)count, (void)result;
    return 42;
}

/* (): runs until it is told to stop. */
KERNEL(spin)
{
    int32_t error;
    (void)arguments, (void)count, (void)result;
    do
        error = farside_checkpoint(ctx);
    while (!error);
    return error;
}

/* (): the card, and what the table has. */
KERNEL(card)
{
    (void)arguments, (void)count;
    if (!FARSIDE_HAS(ctx, card) || ctx->services->size < sizeof(farside_services))
        return farside_fail(ctx, "services are missing");
    *result = farside_card(ctx);
    return FARSIDE_OK;
}

/* (kinds…): what it was given, as a number. */
KERNEL(given)
{
    (void)ctx;
    for (uint32_t i = 0; i < count; i++)
        *result = *result * 100 + arguments[i].kind * 10 + arguments[i].element;
    return FARSIDE_OK;
}

#define RUN_MAX 128

/* The run of these tests: (memory, value count, value bytes between words, value bytes of a word).
 * Gives its length; addresses of words that follow one another. */
static uint64_t run_of(const farside_argument *arguments, uint64_t *addresses)
{
    uint64_t count = arguments[1].word < RUN_MAX ? arguments[1].word : RUN_MAX;
    for (uint64_t i = 0; i < count; i++)
        addresses[i] = arguments[0].word + i * arguments[2].word;
    return count;
}

/* (run): the sum of its words. */
KERNEL(gather)
{
    uint64_t addresses[RUN_MAX] = { 0 }, values[RUN_MAX] = { 0 };
    uint64_t words = run_of(arguments, addresses);
    uint32_t bytes = (uint32_t)arguments[3].word;
    int32_t error = farside_gather(ctx, addresses, bytes, words, values);
    (void)count;
    for (uint64_t i = 0; !error && i < words; i++)
        for (uint32_t byte = 0; byte < bytes; byte++)
            *result += (uint64_t)((uint8_t *)values)[i * bytes + byte] << 8 * byte;
    return error;
}

/* (run of u64): its words become 1, 2 and so on. */
KERNEL(scatter)
{
    uint64_t addresses[RUN_MAX] = { 0 }, values[RUN_MAX] = { 0 };
    uint64_t words = run_of(arguments, addresses);
    (void)count, (void)result;
    for (uint64_t i = 0; i < words; i++)
        values[i] = i + 1;
    return farside_scatter(ctx, addresses, (uint32_t)arguments[3].word, words, values);
}

/* (run, value whether it wants to know): adds 1, 2 and so on; gives the sum of what there was. */
KERNEL(fetch_add_all)
{
    uint64_t addresses[RUN_MAX] = { 0 }, amounts[RUN_MAX] = { 0 }, was[RUN_MAX] = { 0 };
    uint64_t words = run_of(arguments, addresses);
    (void)count;
    for (uint64_t i = 0; i < words; i++)
        amounts[i] = i + 1;
    int32_t error = farside_fetch_add_all(ctx, addresses, (uint32_t)arguments[3].word, words,
                                          amounts, arguments[4].word ? was : NULL);
    for (uint64_t i = 0; i < words; i++)
        *result += was[i];
    return error;
}

/* (run, value expected): replaces it by 1, 2 and so on; gives how many there were. */
KERNEL(compare_exchange_all)
{
    uint64_t addresses[RUN_MAX] = { 0 }, expected[RUN_MAX] = { 0 };
    uint64_t desired[RUN_MAX] = { 0 }, was[RUN_MAX] = { 0 };
    uint64_t words = run_of(arguments, addresses);
    (void)count;
    for (uint64_t i = 0; i < words; i++)
        expected[i] = arguments[4].word, desired[i] = i + 1;
    int32_t error = farside_compare_exchange_all(ctx, addresses, (uint32_t)arguments[3].word,
                                                 words, expected, desired, was);
    for (uint64_t i = 0; !error && i < words; i++)
        *result += was[i] == expected[i];
    return error;
}

/* (memory, value words, value array): passes NULL for one array of a run. */
KERNEL(null_array)
{
    uint64_t word = arguments[0].word, words = arguments[1].word, value = 0;
    (void)count, (void)result;
    switch (arguments[2].word) {
    case 0: return farside_gather(ctx, NULL, 8, words, &value);
    case 1: return farside_gather(ctx, &word, 8, words, NULL);
    case 2: return farside_scatter(ctx, &word, 8, words, NULL);
    case 3: return farside_fetch_add_all(ctx, &word, 8, words, NULL, NULL);
    default: return farside_compare_exchange_all(ctx, &word, 8, words, NULL, &value, NULL);
    }
}

static const farside_kernel kernels[] = {
    { "t.load", load },
    { "t.store", store },
    { "t.fetch_add", fetch_add },
    { "t.compare_exchange", compare_exchange },
    { "t.null_value", null_value },
    { "t.null_body", null_body },
    { "t.stream", stream },
    { "t.part", part },
    { "t.ask", ask },
    { "t.nested", nested },
    { "t.stop", stop },
    { "t.fail_in_body", fail_in_body },
    { "t.ignore", ignore },
    { "t.null_message", null_message },
    { "t.long_message", long_message },
    { "t.code", code },
    { "t.spin", spin },
    { "t.card", card },
    { "t.given", given },
    { "t.gather", gather },
    { "t.scatter", scatter },
    { "t.fetch_add_all", fetch_add_all },
    { "t.compare_exchange_all", compare_exchange_all },
    { "t.null_array", null_array },
};

FARSIDE_EXPORT_KERNELS(kernels)
