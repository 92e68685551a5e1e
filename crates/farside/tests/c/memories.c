/* Kernels that choose among the memories of their card's own. */
#include "farside-kernel.h"

#define KERNEL(name)                                                                       \
    static int32_t name(farside_context *ctx, const farside_argument *arguments, uint32_t count, \
                        uint64_t *result)

/* Bytes of a memory that are free; UINT64_MAX: there is no such memory. */
static uint64_t free_of(farside_context *ctx, uint64_t number)
{
    farside_memory memory = { 0, 0, 0, UINT64_MAX };
    return farside_own_memory(ctx, (uint32_t)number, &memory) ? UINT64_MAX : memory.free;
}

/* (write u64[3 * memories]): kind, bytes and free bytes of each; gives how many there are. */
KERNEL(list)
{
    farside_memory memory;
    int32_t status;
    (void)count;
    if (!FARSIDE_HAS(ctx, own_memory))
        return farside_fail(ctx, "the services are missing");
    while (!(status = farside_own_memory(ctx, (uint32_t)*result, &memory))) {
        const uint64_t told[3] = { memory.kind, memory.bytes, memory.free };
        int32_t error =
            farside_tell(ctx, arguments[0].word + *result * sizeof told, told, sizeof told);
        if (error)
            return error;
        ++*result;
    }
    return status == FARSIDE_NO_SUCH_MEMORY ? FARSIDE_OK : status;
}

/* (value memory, value bytes, value options): the status of an allocation, to which it writes. */
KERNEL(try_alloc)
{
    uint64_t own = 77, before = free_of(ctx, arguments[0].word), word = 0;
    int32_t status = farside_alloc_in(ctx, (uint32_t)arguments[0].word, arguments[1].word,
                                      (uint32_t)arguments[2].word, &own);
    (void)count;
    *result = (uint64_t)status;
    if (status)
        return own == 77 ? FARSIDE_OK : farside_fail(ctx, "something changed");
    if (arguments[2].word & FARSIDE_EAGER
        && before - free_of(ctx, arguments[0].word) != (arguments[1].word + 4095) / 4096 * 4096)
        return farside_fail(ctx, "its frames are not of that memory");
    if (farside_load_u64(ctx, own, &word))
        return FARSIDE_ERROR;
    return farside_store_u64(ctx, own, 1);
}

/* (value memory, value rows, write made, write made_column[2]): numbers in a vector, in a column, and texts. */
KERNEL(build)
{
    const uint8_t memory = (uint8_t)arguments[0].word;
    farside_growable all = FARSIDE_GROWABLE_IN(uint64_t, memory);
    farside_column numbers = FARSIDE_COLUMN_IN(uint64_t, memory), texts = FARSIDE_TEXTS_IN(memory);
    farside_made made;
    farside_made_column columns[2];
    int32_t error = FARSIDE_OK;
    (void)count, (void)result;
    for (uint64_t n = 0; !error && n < arguments[1].word; n++) {
        const uint8_t valid = n % 2 == 0;
        const uint32_t length = 3;
        if ((error = farside_extend(ctx, &all, &n, 1))
            || (error = farside_add_values(ctx, &numbers, &n, &valid, 1)))
            return error;
        error = farside_add_texts(ctx, &texts, "abc", &length, &valid, 1);
    }
    if (error || (error = farside_finish(ctx, &all, &made))
        || (error = farside_finish_column(ctx, &numbers, &columns[0]))
        || (error = farside_finish_column(ctx, &texts, &columns[1])))
        return error;
    /* What is finished begins anew in the same memory. */
    uint64_t before = free_of(ctx, memory), one = 1;
    if ((error = farside_extend(ctx, &all, &one, 1))
        || (error = farside_add_values(ctx, &numbers, &one, NULL, 1)))
        return error;
    if (before - free_of(ctx, memory) != 8192)
        return farside_fail(ctx, "what begins anew is in another memory");
    if ((error = farside_tell(ctx, arguments[2].word, &made, sizeof made)))
        return error;
    return farside_tell(ctx, arguments[3].word, columns, sizeof columns);
}

/* (value memory, write u64[3]): what a vector, a column of numbers and one of texts take of a memory by one element
 * each, where they have memory at once. */
KERNEL(build_eagerly)
{
    const uint8_t memory = (uint8_t)arguments[0].word;
    farside_growable all = FARSIDE_GROWABLE_IN(uint64_t, FARSIDE_EAGER_IN(memory));
    farside_column numbers = FARSIDE_COLUMN_IN(uint64_t, FARSIDE_EAGER_IN(memory));
    farside_column texts = FARSIDE_TEXTS_IN(FARSIDE_EAGER_IN(memory));
    const uint64_t one = 1;
    const uint32_t length = 1;
    uint64_t left[4];
    int32_t error;
    (void)count, (void)result;
    left[0] = free_of(ctx, memory);
    if ((error = farside_extend(ctx, &all, &one, 1)))
        return error;
    left[1] = free_of(ctx, memory);
    if ((error = farside_add_values(ctx, &numbers, &one, NULL, 1)))
        return error;
    left[2] = free_of(ctx, memory);
    if ((error = farside_add_texts(ctx, &texts, "a", &length, NULL, 1)))
        return error;
    left[3] = free_of(ctx, memory);
    for (int i = 0; i < 3; i++)
        left[i] -= left[i + 1];
    return farside_tell(ctx, arguments[1].word, left, 3 * sizeof *left);
}

/* (value which): what makes no sense, one by one; the kernel goes on as if nothing were wrong. */
KERNEL(misuse)
{
    uint64_t own;
    (void)count, (void)result;
    switch (arguments[0].word) {
    case 0: (void)farside_alloc_in(ctx, 0, 8, FARSIDE_LAZY, NULL); break;
    case 1: (void)farside_alloc_in(ctx, 0, 8, 4, &own); break;
    case 2: (void)farside_alloc_in(ctx, 0, 0, FARSIDE_LAZY, &own); break;
    case 3: (void)farside_own_memory(ctx, 0, NULL); break;
    default: break;
    }
    return FARSIDE_OK;
}

static const farside_kernel kernels[] = {
    { "m.list", list },
    { "m.try_alloc", try_alloc },
    { "m.build", build },
    { "m.build_eagerly", build_eagerly },
    { "m.misuse", misuse },
};

FARSIDE_EXPORT_KERNELS(kernels)
