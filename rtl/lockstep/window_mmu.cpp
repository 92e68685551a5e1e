// The C interface through which crates/card/tests/rtl.rs steps the netlist of window_mmu.
//
// Fields are those of `Inputs` and `Outputs` there, in the same order. In a cycle the inputs are set and
// the outputs looked at (window_mmu_look), then the clock rises (window_mmu_clock).
#include <cstdint>

#include "Vwindow_mmu.h"
#include "verilated.h"

struct Inputs {
  uint64_t window_base, root_addr, in_addr, in_tag, inval_first, inval_last, r_data;
  uint8_t rst, in_valid, in_write, out_ready, inval_valid, ar_ready, r_valid, r_id, r_resp;
};

struct Outputs {
  uint64_t out_addr, out_tag, ar_addr;
  uint8_t in_ready, out_valid, out_write, out_inwindow, out_memory, out_status;
  uint8_t inval_ready, inval_done, ar_valid, ar_id, r_ready;
};

struct Model {
  VerilatedContext context;
  Vwindow_mmu top{&context};
};

extern "C" {

Model *window_mmu_new() { return new Model; }

void window_mmu_free(Model *model) { delete model; }

void window_mmu_look(Model *model, const Inputs *in, Outputs *out) {
  Vwindow_mmu &top = model->top;
  top.Clk = 0;
  top.Rst = in->rst;
  top.Window_Base = in->window_base;
  top.Root_Addr = in->root_addr;
  top.In_Valid = in->in_valid;
  top.In_Addr = in->in_addr;
  top.In_Write = in->in_write;
  top.In_Tag = in->in_tag;
  top.Out_Ready = in->out_ready;
  top.Inval_Valid = in->inval_valid;
  top.Inval_First = in->inval_first;
  top.Inval_Last = in->inval_last;
  top.Axi_ArReady = in->ar_ready;
  top.Axi_RValid = in->r_valid;
  top.Axi_RId = in->r_id;
  top.Axi_RData = in->r_data;
  top.Axi_RResp = in->r_resp;
  top.eval();
  *out = {top.Out_Addr, top.Out_Tag, top.Axi_ArAddr, top.In_Ready, top.Out_Valid, top.Out_Write,
          top.Out_InWindow, top.Out_Memory, top.Out_Status, top.Inval_Ready, top.Inval_Done,
          top.Axi_ArValid, top.Axi_ArId, top.Axi_RReady};
}

void window_mmu_clock(Model *model) {
  model->top.Clk = 1;
  model->top.eval();
}
}
