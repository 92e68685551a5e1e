// The C interface through which crates/card/tests/rtl.rs steps the netlist of window_mmu.
//
// Fields are those of `Inputs` and `Outputs` there, in the same order. In a cycle the inputs are set and
// the outputs looked at (window_mmu_look), then the clock rises (window_mmu_clock).
#include <cstddef>
#include <cstdint>

#include "Vwindow_mmu.h"
#include "verilated.h"

struct Inputs {
  uint64_t window_base, in_addr, in_tag, inval_first, inval_last, root_index, root_word, r_data[8];
  uint8_t rst, in_valid, in_write, out_ready, inval_valid, root_valid, ar_ready, r_valid, r_resp;
};

struct Outputs {
  uint64_t out_addr, out_tag, ar_addr;
  uint8_t in_ready, out_valid, out_write, out_inwindow, out_memory, out_status;
  uint8_t inval_ready, inval_done, root_ready, ar_valid, ar_size, r_ready;
  uint8_t event_accept, event_look, event_held, event_drop;
  uint8_t event_walk, event_found, event_ahead, event_resp, event_walked;
};

struct Model {
  VerilatedContext context;
  Vwindow_mmu top{&context};
};

// A beat of 64 bits, or a wider one.
static void set_beat(QData &port, const uint64_t *words) { port = words[0]; }

template <std::size_t N>
static void set_beat(VlWide<N> &port, const uint64_t *words) {
  for (std::size_t i = 0; i < N; ++i) port[i] = static_cast<EData>(words[i / 2] >> (i % 2 * 32));
}

extern "C" {

Model *window_mmu_new() { return new Model; }

void window_mmu_free(Model *model) { delete model; }

void window_mmu_look(Model *model, const Inputs *in, Outputs *out) {
  Vwindow_mmu &top = model->top;
  top.Clk = 0;
  top.Rst = in->rst;
  top.Window_Base = in->window_base;
  top.In_Valid = in->in_valid;
  top.In_Addr = in->in_addr;
  top.In_Write = in->in_write;
  top.In_Tag = in->in_tag;
  top.Out_Ready = in->out_ready;
  top.Inval_Valid = in->inval_valid;
  top.Inval_First = in->inval_first;
  top.Inval_Last = in->inval_last;
  top.Root_Valid = in->root_valid;
  top.Root_Index = in->root_index;
  top.Root_Word = in->root_word;
  top.Axi_ArReady = in->ar_ready;
  top.Axi_RValid = in->r_valid;
  set_beat(top.Axi_RData, in->r_data);
  top.Axi_RResp = in->r_resp;
  top.eval();
  *out = {top.Out_Addr,     top.Out_Tag,     top.Axi_ArAddr,  top.In_Ready,    top.Out_Valid,
          top.Out_Write,    top.Out_InWindow, top.Out_Memory, top.Out_Status,  top.Inval_Ready,
          top.Inval_Done,   top.Root_Ready,  top.Axi_ArValid, top.Axi_ArSize,  top.Axi_RReady,
          top.Event_Accept, top.Event_Look,  top.Event_Held,  top.Event_Drop,
          top.Event_Walk,   top.Event_Found, top.Event_Ahead, top.Event_Resp,
          top.Event_Walked};
}

void window_mmu_clock(Model *model) {
  model->top.Clk = 1;
  model->top.eval();
}
}
