// Replays a trace of rtl/test/tb_translator.vhd, simulated by GHDL, on the netlist: each output of each cycle.
//
// A line of the trace has the ports of a cycle in the order of `Ports`, in bits; an output that is not known in the
// simulation (U or X) may be anything. Usage: replay TRACE; exit codes: 0 equal, 1 not, with the first difference.
#include <cstdint>
#include <fstream>
#include <iostream>
#include <string>

#include "Vtranslator.h"
#include "verilated.h"

static uint64_t number(const std::string &bits) {
  uint64_t value = 0;
  for (char bit : bits) value = value << 1 | (bit == '1');
  return value;
}

// Whether all bits that are known are those of the value.
static bool is_equal(const std::string &bits, uint64_t value) {
  for (std::size_t i = 0; i < bits.size(); ++i) {
    const char bit = bits[bits.size() - 1 - i];
    if ((bit == '0' || bit == '1') && (value >> i & 1) != static_cast<uint64_t>(bit == '1')) return false;
  }
  return true;
}

int main(int argc, char **argv) {
  if (argc != 2) return 1;
  std::ifstream trace(argv[1]);
  VerilatedContext context;
  Vtranslator top{&context};
  uint64_t cycle = 0;
  std::string bits;

#define IN(port) \
  if (!(trace >> bits)) break; \
  top.port = number(bits);
#define OUT(port) \
  if (!(trace >> bits)) return 1; \
  if (!is_equal(bits, top.port)) { \
    std::cout << "cycle " << cycle << ": " #port " is " << static_cast<uint64_t>(top.port) << ", not " << bits << "\n"; \
    return 1; \
  }
  for (;; ++cycle) {
    top.Clk = 0;
    IN(Rst) IN(Window_Base) IN(In_Valid) IN(In_Addr) IN(In_Write) IN(In_Tag) IN(Out_Ready) IN(Walk_Ready)
    IN(Resp_Valid) IN(Resp_Status) IN(Resp_Writable) IN(Resp_Memory) IN(Resp_Size) IN(Resp_Frame)
    IN(Inval_Valid) IN(Inval_First) IN(Inval_Last)
    top.eval();
    OUT(In_Ready) OUT(Out_Valid) OUT(Out_Addr) OUT(Out_Write) OUT(Out_Tag) OUT(Out_InWindow) OUT(Out_Memory)
    OUT(Out_Status) OUT(Walk_Valid) OUT(Walk_Page) OUT(Resp_Ready) OUT(Inval_Ready) OUT(Inval_Done)
    top.Clk = 1;
    top.eval();
  }
  std::cout << "equal   " << cycle << " cycles\n";
  return cycle > 1000 ? 0 : 1;
}
