/* Kernels that allocate in their card's own memory, in right and in wrong ways. */
#include <stdio.h>

#include "farside-kernel.h"

#define KERNEL(name)                                                                       \
    static int32_t name(farside_context *ctx, const farside_argument *arguments, uint32_t count, \
                        uint64_t *result)

static int32_t fill_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    uint64_t factor = *(const uint64_t *)user;
    for (uint64_t i = 0; i < count; i++)
        ((uint64_t *)pieces[0])[i] = (first + i) * factor;
    return FARSIDE_OK;
}

static int32_t sum_piece(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    (void)first;
    for (uint64_t i = 0; i < count; i++)
        *(uint64_t *)user += ((const uint64_t *)pieces[0])[i];
    return FARSIDE_OK;
}

static int32_t over(farside_context *ctx, uint64_t address, uint64_t words, farside_body body,
                    uint64_t *user)
{
    farside_range range = { address, words * 8, 8, FARSIDE_WRITE };
    return farside_for_each(ctx, &range, 1, body, user);
}

/* (value words): fills memory, grows it so that it moves, shrinks it, frees it; gives the sum. */
KERNEL(use)
{
    uint64_t words = arguments[0].word, own, other, factor = 3, word = 1;
    int32_t error;
    (void)count;
    if (!FARSIDE_HAS(ctx, finish))
        return farside_fail(ctx, "the services are missing");
    if ((error = farside_alloc(ctx, words * 8, FARSIDE_LAZY, &own))
        || (error = over(ctx, own, words, fill_piece, &factor))
        || (error = farside_alloc(ctx, 8, FARSIDE_EAGER, &other)))
        return error;
    uint64_t was = own;
    if ((error = farside_realloc(ctx, &own, words * 64 + 8192))
        || (error = farside_load_u64(ctx, own + words * 64 + 8184, &word)))
        return error;
    if (word != 0 || own == was)
        return farside_fail(ctx, "it did not move, or what is new is not zero");
    if ((error = farside_realloc(ctx, &own, words * 8))
        || (error = over(ctx, own, words, sum_piece, result))
        || (error = farside_free(ctx, own)))
        return error;
    return farside_free(ctx, other);
}

/* (write made[2], value count): the even numbers below count, as u32, and the odd ones, as u64. */
KERNEL(grow)
{
    farside_growable even = FARSIDE_GROWABLE(uint32_t), odd = FARSIDE_GROWABLE(uint64_t);
    farside_made made[2];
    int32_t error;
    (void)count;
    for (uint64_t first = 0; first < arguments[1].word; first += 2000) {
        uint32_t evens[1000], n_even = 0;
        uint64_t odds[1000], n_odd = 0;
        for (uint64_t n = first; n < first + 2000 && n < arguments[1].word; n++) {
            if (n % 2)
                odds[n_odd++] = n;
            else
                evens[n_even++] = (uint32_t)n;
        }
        if ((error = farside_extend(ctx, &even, evens, n_even))
            || (error = farside_extend(ctx, &odd, odds, n_odd)))
            return error;
    }
    if (odd.length) {
        farside_range grown = farside_grown(&odd);
        if ((error = farside_for_each(ctx, &grown, 1, sum_piece, result)))
            return error;
    }
    if ((error = farside_finish(ctx, &even, &made[0]))
        || (error = farside_finish(ctx, &odd, &made[1])))
        return error;
    if (even.address || even.length || odd.address || odd.length)
        return farside_fail(ctx, "a vector that is finished is not empty");
    return farside_tell(ctx, arguments[0].word, made, sizeof made);
}

/* (value bytes, value backing): the status of an allocation, and then goes on. */
KERNEL(try_alloc)
{
    uint64_t own = 77, word = 0;
    int32_t status = farside_alloc(ctx, arguments[0].word, (uint32_t)arguments[1].word, &own);
    (void)count;
    *result = (uint64_t)status;
    if (status)
        return own == 77 ? FARSIDE_OK : farside_fail(ctx, "something changed");
    return farside_load_u64(ctx, own, &word);
}

/* (value bytes, value backing): returns the status of an allocation. */
KERNEL(must_alloc)
{
    uint64_t own;
    (void)count, (void)result;
    return farside_alloc(ctx, arguments[0].word, (uint32_t)arguments[1].word, &own);
}

/* (): adds until nothing is left, and gives how many words there are then, all of them right. */
KERNEL(fill_up)
{
    farside_growable all = FARSIDE_GROWABLE(uint64_t);
    static _Thread_local uint64_t block[4096];
    int32_t status = FARSIDE_OK;
    (void)arguments, (void)count;
    while (!status) {
        for (uint64_t i = 0; i < 4096; i++)
            block[i] = all.length + i;
        status = farside_extend(ctx, &all, block, 4096);
    }
    if (status != FARSIDE_NO_MEMORY)
        return farside_fail(ctx, "it ended for another reason");
    uint64_t sum = 0, length = all.length;
    farside_range grown = farside_grown(&all);
    int32_t error = farside_for_each(ctx, &grown, 1, sum_piece, &sum);
    if (error)
        return error;
    if (sum != length * (length - 1) / 2)
        return farside_fail(ctx, "what was added is not there");
    *result = length;
    return FARSIDE_OK;
}

/* (write made, value pages, value free): a vector of so many pages, as words 0, 1 and so on, each of whose pages lies
 * alone, on a card with so many pages that are free. */
KERNEL(scatter)
{
    static _Thread_local uint64_t taken[1 << 17], block[512];
    uint64_t pages = arguments[1].word, rest = arguments[2].word - 2 * pages, own, word;
    farside_growable all = FARSIDE_GROWABLE(uint64_t);
    farside_made made;
    int32_t error = FARSIDE_OK;
    (void)count;
    if (2 * pages > sizeof taken / sizeof *taken || pages > arguments[2].word / 2)
        return farside_fail(ctx, "the card has not so many pages");
    for (uint64_t i = 0; !error && i < 2 * pages; i++)
        error = farside_alloc(ctx, 4096, FARSIDE_EAGER, &taken[i]);
    for (uint64_t i = 0; !error && i < 2 * pages; i += 2)
        error = farside_free(ctx, taken[i]);
    /* What was never used lies in one piece: it is taken first. */
    if (!error && rest)
        error = farside_alloc(ctx, rest * 4096, FARSIDE_EAGER, &own);
    for (uint64_t i = 0; !error && i < pages; i++) {
        for (word = 0; word < 512; word++)
            block[word] = i * 512 + word;
        error = farside_extend(ctx, &all, block, 512);
    }
    if (error || (error = farside_finish(ctx, &all, &made)))
        return error;
    *result = made.length;
    return farside_tell(ctx, arguments[0].word, &made, sizeof made);
}

/* (value which): what makes no sense, one by one; the kernel goes on as if nothing were wrong. */
KERNEL(misuse)
{
    uint64_t own = 0, word = 0;
    farside_growable all = FARSIDE_GROWABLE(uint64_t);
    farside_made made;
    (void)count, (void)result;
    if (farside_alloc(ctx, 8192, FARSIDE_EAGER, &own) || farside_extend(ctx, &all, &own, 1))
        return farside_fail(ctx, "the beginning failed");
    switch (arguments[0].word) {
    case 0: (void)farside_alloc(ctx, 8, FARSIDE_LAZY, NULL); break;
    case 1: (void)farside_alloc(ctx, 8, 2, &word); break;
    case 2: (void)farside_alloc(ctx, 0, FARSIDE_LAZY, &word); break;
    case 3: (void)farside_realloc(ctx, NULL, 8); break;
    case 4: (void)farside_realloc(ctx, &word, 8); break;
    case 5: (void)farside_free(ctx, own + 4096); break;
    case 6: (void)farside_free(ctx, own), (void)farside_free(ctx, own); break;
    case 7: (void)farside_extend(ctx, NULL, &word, 1); break;
    case 8: (void)farside_extend(ctx, &all, NULL, 1); break;
    case 9: all.element = 0, (void)farside_extend(ctx, &all, &word, 1); break;
    case 10: all.length = 1u << 31, (void)farside_extend(ctx, &all, &word, 1); break;
    case 11: all.address = 0, (void)farside_extend(ctx, &all, &word, 1); break;
    case 12: all.reserved = UINT64_MAX, (void)farside_extend(ctx, &all, &word, 1); break;
    case 13: (void)farside_extend(ctx, &all, &word, UINT64_MAX / 4); break;
    case 14: (void)farside_finish(ctx, &all, NULL); break;
    case 15: all.address = 1u << 20, (void)farside_finish(ctx, &all, &made); break;
    case 16:
        word = all.address;
        if (farside_finish(ctx, &all, &made))
            return farside_fail(ctx, "the end failed");
        (void)farside_store_u64(ctx, word, 1);
        break;
    default: return FARSIDE_OK;
    }
    return FARSIDE_OK;
}

/* Row n of the columns of these tests is null if n is a multiple of step, from row first on; of no row if step is 0. */
static uint8_t is_valid(const farside_argument *arguments, uint64_t n)
{
    return arguments[2].word == 0 || n < arguments[3].word || n % arguments[2].word != 0;
}

/* (write made_column[2], value rows, value step, value first): numbers, as i32, and their digits. */
KERNEL(columns)
{
    farside_column numbers = FARSIDE_COLUMN(int32_t), texts = FARSIDE_TEXTS;
    farside_made_column made[2];
    int32_t error = FARSIDE_OK;
    (void)count, (void)result;
    for (uint64_t n = 0; !error && n < arguments[1].word;) {
        int32_t values[77];
        uint8_t valid[77], any = 0;
        uint32_t lengths[77], rows = 0, bytes = 0;
        char text[77 * 20];
        for (; rows < 77 && n < arguments[1].word; rows++, n++) {
            valid[rows] = is_valid(arguments, n);
            any |= !valid[rows];
            values[rows] = -(int32_t)n;
            lengths[rows] = valid[rows] ? (uint32_t)sprintf(text + bytes, "%d", values[rows]) : 0;
            bytes += lengths[rows];
        }
        error = farside_add_values(ctx, &numbers, values, any ? valid : NULL, rows);
        if (!error)
            error = farside_add_texts(ctx, &texts, text, lengths, any ? valid : NULL, rows);
    }
    if (error || (error = farside_finish_column(ctx, &numbers, &made[0]))
        || (error = farside_finish_column(ctx, &texts, &made[1])))
        return error;
    if (numbers.length || texts.length)
        return farside_fail(ctx, "a column that is finished is not empty");
    return farside_tell(ctx, arguments[0].word, made, sizeof made);
}

/* (write made_column, value rows): whether n is a multiple of three, null if it is one of seven. */
KERNEL(flags)
{
    farside_column flags = FARSIDE_COLUMN(uint8_t);
    farside_made_column made;
    int32_t error = FARSIDE_OK;
    (void)count, (void)result;
    for (uint64_t n = 0; !error && n < arguments[1].word; n++) {
        /* Any byte but 0 is true. */
        const uint8_t flag = n % 3 == 0 ? (uint8_t)(n | 1) : 0, valid = n % 7 != 0;
        error = farside_add_values(ctx, &flags, &flag, &valid, 1);
    }
    if (error || (error = farside_finish_column(ctx, &flags, &made)))
        return error;
    return farside_tell(ctx, arguments[0].word, &made, sizeof made);
}

/* (write made_column, value which): a column of texts that are none. */
KERNEL(no_texts)
{
    farside_column texts = FARSIDE_TEXTS;
    farside_made_column made;
    const uint32_t lengths[3] = { 2, 1, 3 };
    const uint64_t which = arguments[1].word;
    const char *bytes = which == 0 ? "ab\xff" "cde" : "a\xc3\xa4" "cde";
    int32_t error = farside_add_texts(ctx, &texts, bytes, lengths, NULL, 3);
    (void)count, (void)result;
    if (!error && which == 2)
        error = farside_store_u32(ctx, texts.offsets.address + 8, 1u << 30);
    if (!error && which == 3)
        error = farside_store_u32(ctx, texts.offsets.address + 4, 4);
    if (error || (error = farside_finish_column(ctx, &texts, &made)))
        return error;
    return farside_tell(ctx, arguments[0].word, &made, sizeof made);
}

/* (): adds rows until nothing is left; gives how many there are, and that it can be finished then. */
KERNEL(fill_column)
{
    farside_column column = FARSIDE_COLUMN(uint64_t);
    farside_made_column made;
    static _Thread_local uint64_t values[4096];
    static _Thread_local uint8_t valid[4096];
    int32_t error = FARSIDE_OK;
    (void)arguments, (void)count;
    while (!error)
        error = farside_add_values(ctx, &column, values, valid, 4096);
    *result = column.length;
    if (error != FARSIDE_NO_MEMORY)
        return farside_fail(ctx, "it ended for another reason");
    uint64_t rows = column.length;
    if ((error = farside_finish_column(ctx, &column, &made)))
        return error;
    return made.length == rows && made.validity.length == rows / 8 && made.values.length == rows
        ? FARSIDE_OK : farside_fail(ctx, "the column is not whole");
}

/* (value which): what makes no sense, one by one; the kernel goes on as if nothing were wrong. */
KERNEL(misuse_column)
{
    farside_column numbers = FARSIDE_COLUMN(int32_t), texts = FARSIDE_TEXTS;
    uint32_t word = 1;
    (void)count, (void)result;
    if (farside_add_values(ctx, &numbers, &word, NULL, 1)
        || farside_add_texts(ctx, &texts, "a", &word, NULL, 1))
        return farside_fail(ctx, "the beginning failed");
    switch (arguments[0].word) {
    case 0: (void)farside_add_values(ctx, NULL, &word, NULL, 1); break;
    case 1: (void)farside_add_values(ctx, &numbers, NULL, NULL, 1); break;
    case 2: (void)farside_add_texts(ctx, &texts, "a", NULL, NULL, 1); break;
    case 3: (void)farside_add_texts(ctx, &texts, NULL, &word, NULL, 1); break;
    case 4: (void)farside_finish_column(ctx, &numbers, NULL); break;
    case 5: (void)farside_add_values(ctx, &texts, &word, NULL, 1); break;
    case 6: (void)farside_add_texts(ctx, &numbers, "a", &word, NULL, 1); break;
    case 7: numbers.nulls = 2, (void)farside_add_values(ctx, &numbers, &word, NULL, 1); break;
    case 8: numbers.bits = 256, (void)farside_add_values(ctx, &numbers, &word, NULL, 1); break;
    case 9: texts.offsets.element = 8, (void)farside_add_texts(ctx, &texts, "a", &word, NULL, 1); break;
    case 10: (void)farside_add_values(ctx, &numbers, &word, NULL, UINT64_MAX / 2); break;
    case 11:
        /* As if the first text had so many bytes. */
        (void)farside_store_u32(ctx, texts.offsets.address + 4, INT32_MAX);
        (void)farside_add_texts(ctx, &texts, "a", &word, NULL, 1);
        break;
    default: break;
    }
    return FARSIDE_OK;
}

static const farside_kernel kernels[] = {
    { "o.use", use },         { "o.grow", grow },       { "o.try_alloc", try_alloc },
    { "o.must_alloc", must_alloc }, { "o.fill_up", fill_up }, { "o.misuse", misuse },
    { "o.scatter", scatter },
    { "o.columns", columns },
    { "o.flags", flags },
    { "o.no_texts", no_texts },
    { "o.fill_column", fill_column },
    { "o.misuse_column", misuse_column },
};

FARSIDE_EXPORT_KERNELS(kernels)
