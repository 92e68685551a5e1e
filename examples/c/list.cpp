// A linked list in C++: card 0 makes it, card 1 follows its pointers, the program reads what both did. The same addresses
// are valid everywhere.
//
//     c++ -std=c++17 list.cpp $(pkg-config --cflags --libs farside) -o list && ./list
#include <cstdio>
#include <numeric>

#include <farside.hpp>

struct node {
    std::uint64_t value;
    std::uint64_t next; // index of the next, for a kernel that gets the nodes in one piece
};

// Writes each node's value, and which is the next: seven further on.
static std::int32_t link_nodes(void *, void *const *pieces, std::uint64_t first, std::uint64_t count)
{
    auto nodes = static_cast<node *>(pieces[0]);
    for (std::uint64_t i = 0; i < count; i++)
        nodes[i] = {first + i, first + i + 7};
    return 0;
}

// Doubles the values.
static std::int32_t twice(void *, void *const *pieces, std::uint64_t, std::uint64_t count)
{
    auto nodes = static_cast<node *>(pieces[0]);
    for (std::uint64_t i = 0; i < count; i++)
        nodes[i].value *= 2;
    return 0;
}

int main()
try {
    farside::space space;
    farside::buffer<node> nodes(space, 100'000, "nodes");
    auto linked = space.launch(link_nodes, farside::on(0), farside::write(nodes));
    auto doubled = space.launch(twice, farside::on(1).after(linked), farside::write(nodes));
    std::printf("%llu nodes\n", static_cast<unsigned long long>(doubled.wait()));

    std::uint64_t sum = 0, steps = 0;
    for (std::uint64_t at = 0; at < nodes.size(); at = nodes[at].next, steps++)
        sum += nodes[at].value;
    std::printf("%llu steps, sum %llu\n%s\n", static_cast<unsigned long long>(steps),
                static_cast<unsigned long long>(sum), space.why(&nodes[0]).c_str());
    return sum == 7 * (steps - 1) * steps ? 0 : 1;
} catch (const farside::error &error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
}
