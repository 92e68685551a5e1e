// What the C++ header makes of refusals, of moves, and of things that outlive their space.
#include <array>
#include <atomic>
#include <cassert>
#include <cstdio>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include <farside.hpp>

template <class Act> static void refused(farside_status status, const char *words, Act act)
{
    try {
        act();
    } catch (const farside::error &error) {
        if (error.status() == status && std::string(error.what()).find(words) != std::string::npos)
            return;
        std::fprintf(stderr, "not `%s`: %d, %s\n", words, error.status(), error.what());
        std::exit(1);
    }
    std::fprintf(stderr, "`%s` was not refused\n", words);
    std::exit(1);
}

static std::atomic<bool> go;

static std::int32_t wait_for_go(void *, void *const *, std::uint64_t, std::uint64_t)
{
    while (!go)
        std::this_thread::yield();
    return 0;
}

static std::int32_t fail(void *, void *const *, std::uint64_t, std::uint64_t) { return 5; }

int main()
{
    farside::options options;
    options.cards = 3;
    const std::array<farside_window, 2> windows{{{"ddr", 1 << 20}, {"hbm", 1 << 16}}};
    options.windows = windows.data();
    options.window_count = windows.size();
    std::optional<farside::space> space(options);
    assert(space->cards() == 3);
    farside::buffer<float> x(*space, 1000, "x"), y(*space, 1000);
    for (std::size_t i = 0; i < x.size(); i++)
        x[i] = i;
    space->call("farside.saxpy", farside::on(2), 2.0f, farside::read(x), farside::write(y));
    assert(y[999] == 1998);
    // The bits of an int are no float of the same size.
    refused(FARSIDE_STATUS_KERNEL_FAILED, "an integer; wanted is a value of 4 bytes, a float",
            [&] { space->call("farside.saxpy", farside::on(2), 2, farside::read(x), farside::write(y)); });
    assert(y[999] == 1998);
    space->migrate(y, 1);
    assert(space->where(y).at(0).memory == 1);
    space->prefetch(y, farside::host);
    assert(space->report(true).front() == '{');

    auto own = farside::buffer<std::uint64_t>::own(*space, 0, 512, space->memory_number(0, "hbm"));
    own[3] = 8;
    assert(space->call("farside.sum", farside::on(0), farside::read(own)) != 0);
    refused(FARSIDE_STATUS_BAD_MEMORY, "stays where it is", [&] { space->migrate(own, 1); });
    refused(FARSIDE_STATUS_KERNEL_FAILED, "ended with 5",
            [&] { space->call(fail, farside::on(0), farside::write(x)); });
    std::array<float, 4> local{};
    refused(FARSIDE_STATUS_BAD_MEMORY, "no memory of this space",
            [&] { space->call("farside.sum", farside::on(0), farside::read(local)); });
    refused(FARSIDE_STATUS_NO_MEMORY, "pages",
            [&] { farside::buffer<double> all(*space, SIZE_MAX / 2); });
    refused(FARSIDE_STATUS_NO_CARD, "card 9", [&] { space->pin(x, 9); });

    // A vector of the program's own, shared where it is.
    std::vector<std::uint64_t> values(3000, 1);
    {
        farside::adopted shared(*space, values, "values");
        space->call("farside.increment", farside::on(1), farside::write(shared));
        assert(shared[2999] == 2);
        space->migrate(shared, 1);
        refused(FARSIDE_STATUS_BAD_MEMORY, "already", [&] { farside::adopted again(*space, values); });
        auto holds = space->launch(wait_for_go, farside::on(0), farside::write(shared));
        refused(FARSIDE_STATUS_LENT, "not freed", [&] { shared.release(); });
        go = true;
        holds.wait();
        shared.release();
        assert(shared.size() == 0 && values[0] == 2 && values[2999] == 2);
        farside::adopted moved_on(*space, values);
        shared = std::move(moved_on);
        space->migrate(shared, 2);
    }
    assert(values[2999] == 2);
    refused(FARSIDE_STATUS_BAD_MEMORY, "no memory of this space",
            [&] { space->call("farside.sum", farside::on(0), farside::read(values)); });

    // A file, whose changes are written by `sync` and `close`, and at the end.
    const char *const path = "numbers.bin";
    std::FILE *file = std::fopen(path, "wb");
    assert(file != nullptr && std::fwrite(values.data(), 8, values.size(), file) == values.size());
    std::fclose(file);
    auto word = [&](long at) {
        std::uint64_t found = 0;
        std::FILE *written = std::fopen(path, "rb");
        assert(written != nullptr && std::fseek(written, 8 * at, SEEK_SET) == 0);
        assert(std::fread(&found, 8, 1, written) == 1);
        std::fclose(written);
        return found;
    };
    {
        farside::mapped_file<std::uint64_t> numbers(*space, path);
        assert(numbers.size() == 3000 && numbers[2999] == values[2999]);
        refused(FARSIDE_STATUS_FAILED, "locked",
                [&] { farside::mapped_file<std::uint64_t> again(*space, path); });
        space->call("farside.increment", farside::on(0), farside::write(numbers));
        numbers.sync();
        assert(word(2999) == values[2999] + 1);
        numbers[1] = 77;
        numbers.close();
        assert(word(1) == 77 && numbers.size() == 0);
        farside::mapped_file<std::uint64_t> again(*space, path);
        again[2] = 78;
    }
    assert(word(2) == 78);
    std::remove(path);

    farside::buffer<float> moved(std::move(x));
    assert(x.size() == 0 && moved[7] == 7);
    auto job = space->launch("farside.saxpy", farside::on(0), 1.0f, farside::read(moved), farside::write(y));
    space.reset();
    job.wait();
    std::puts("all well");
}
