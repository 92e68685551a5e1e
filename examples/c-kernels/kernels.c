/* Three kernels in C: add vectors, count words, walk a list. README.md says how to compile them.
 */
#include "farside-kernel.h"

static int is(const farside_argument *argument, uint32_t kind, uint32_t element)
{
    return argument->kind == kind && argument->element == element;
}

/* One piece of each range: x, y to read, z to write. */
static int32_t add_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    const float *x = pieces[0], *y = pieces[1];
    float *z = pieces[2];
    (void)user;
    (void)first;
    for (uint64_t i = 0; i < count; i++)
        z[i] = x[i] + y[i];
    return FARSIDE_OK;
}

/* example.add: z = x + y. Reads f32 x and y, writes f32 z; gives how many there are. */
static int32_t add(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                   uint64_t *result)
{
    if (count != 3 || !is(&arguments[0], FARSIDE_READ, 4) || !is(&arguments[1], FARSIDE_READ, 4)
        || !is(&arguments[2], FARSIDE_WRITE, 4))
        return farside_fail(ctx, "takes (read f32 x, read f32 y, write f32 z)");
    /* farside_for_each itself checks that they are equally long. */
    farside_range ranges[3] = { farside_read(&arguments[0]), farside_read(&arguments[1]),
                                farside_write(&arguments[2]) };
    *result = arguments[2].bytes / 4;
    return farside_for_each(ctx, ranges, 3, add_piece, NULL);
}

/* What is counted, from piece to piece. */
struct counts {
    uint64_t lines, words, bytes;
    int in_word;
};

static int32_t count_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    struct counts *counts = user;
    const unsigned char *text = pieces[0];
    (void)first;
    for (uint64_t i = 0; i < count; i++) {
        int space = text[i] == ' ' || (text[i] >= '\t' && text[i] <= '\r');
        counts->lines += text[i] == '\n';
        counts->words += !space && !counts->in_word;
        counts->in_word = !space;
    }
    counts->bytes += count;
    return FARSIDE_OK;
}

/* example.count: lines, words and bytes of a text, as wc counts them. Reads u8, adds to three
 * shared u64, to which other cards may add at the same time; gives the words. */
static int32_t count_words(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                           uint64_t *result)
{
    if (count != 2 || !is(&arguments[0], FARSIDE_READ, 1) || !is(&arguments[1], FARSIDE_SHARED, 8)
        || arguments[1].bytes != 3 * 8)
        return farside_fail(ctx, "takes (read u8 text, shared u64 [lines, words, bytes])");
    struct counts counts = { 0, 0, 0, 0 };
    farside_range text = farside_read(&arguments[0]);
    int32_t error = farside_for_each(ctx, &text, 1, count_piece, &counts);
    if (error)
        return error;
    const uint64_t sums[3] = { counts.lines, counts.words, counts.bytes };
    for (uint32_t i = 0; i < 3; i++) {
        error = farside_fetch_add(ctx, arguments[1].word + 8 * i, 8, sums[i], NULL);
        if (error)
            return error;
    }
    *result = counts.words;
    return FARSIDE_OK;
}

/* example.walk: adds up a list of { u64 value, u64 next }, from a first node to one whose next is
 * 0. Takes the memory of the nodes to read, and the first node's address as a value. */
static int32_t walk(farside_context *ctx, const farside_argument *arguments, uint32_t count,
                    uint64_t *result)
{
    if (count != 2 || arguments[0].kind != FARSIDE_READ || !farside_is_value(&arguments[1], FARSIDE_INTEGER, 8))
        return farside_fail(ctx, "takes (read nodes, value u64 first)");
    /* A node that leads back would be walked for ever: there are no more steps than nodes. */
    uint64_t left = arguments[0].bytes / 16;
    for (uint64_t node = arguments[1].word; node != 0; left--) {
        uint64_t value;
        if (left == 0)
            return farside_fail(ctx, "the list leads back to itself");
        int32_t error = farside_load_u64(ctx, node, &value);
        if (!error)
            error = farside_load_u64(ctx, node + 8, &node);
        if (error)
            return error;
        *result += value;
    }
    return FARSIDE_OK;
}

static const farside_kernel kernels[] = {
    { "example.add", add },
    { "example.count", count_words },
    { "example.walk", walk },
};

FARSIDE_EXPORT_KERNELS(kernels)
