/* What a C program does that Rust's tests of these calls cannot: fork, end while its space is open, and be compiled as C. */
#include <assert.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <farside.h>

static void must(farside_status status)
{
    if (status != FARSIDE_STATUS_OK) {
        fprintf(stderr, "%s\n", farside_last_error());
        _exit(1);
    }
}

static int32_t add_one(void *user, void *const *pieces, uint64_t first, uint64_t count)
{
    (void)user, (void)first;
    for (uint64_t i = 0; i < count; i++)
        ((uint64_t *)pieces[0])[i]++;
    return 0;
}

/* Counts up on card 1, through a pointer of this process. */
static void count_up(farside_space *space, uint64_t *word)
{
    farside_argument argument = { FARSIDE_WRITE, sizeof *word, (uintptr_t)word, sizeof *word };
    farside_launch how = FARSIDE_LAUNCH_INIT;
    how.card = 1;
    how.body = add_one;
    uint64_t elements;
    must(farside_call(space, NULL, &argument, 1, &how, &elements));
    assert(elements == 1);
}

int main(void)
{
    assert(farside_abi() == FARSIDE_ABI);
    assert(strlen(farside_last_error()) == 0);
    farside_space *space;
    void *memory;
    must(farside_open(NULL, &space));
    must(farside_malloc(space, 4096, "word", &memory));
    uint64_t *word = memory;
    *word = 41;
    count_up(space, word);
    assert(*word == 42);

    pid_t child = fork();
    assert(child >= 0);
    if (child == 0) {
        /* The parent's space is not here, and one of the child's own is. */
        assert(farside_malloc(space, 4096, NULL, &memory) == FARSIDE_STATUS_WRONG_PROCESS);
        assert(strstr(farside_last_error(), "forked"));
        assert(farside_close(space) == FARSIDE_STATUS_WRONG_PROCESS);
        farside_space *parents = space;
        must(farside_open(NULL, &space));
        assert(space != parents && farside_close(parents) == FARSIDE_STATUS_WRONG_PROCESS);
        must(farside_malloc(space, 4096, NULL, &memory));
        *(uint64_t *)memory = 6;
        count_up(space, memory);
        _exit(*(uint64_t *)memory == 7 ? 7 : 1);
    }
    int status;
    assert(waitpid(child, &status, 0) == child);
    assert(WIFEXITED(status) && WEXITSTATUS(status) == 7);
    count_up(space, word);
    assert(*word == 43);
    puts("all well");
    /* The space is still open. */
    return 0;
}
