// The C interface through which crates/card/tests/rtl.rs steps the netlist of mmu_top, without an allocator.
//
// Fields are those of `Inputs` and `Outputs` in rig_rtl/whole.rs, in the same order; of each pair the first is the
// reader's, the second the writer's. Of data the lowest 64 bits say whose they are. In a cycle the inputs are set and
// the outputs looked at (mmu_top_look), then the clock rises (mmu_top_clock).
#include <cstdint>

#include "Vmmu_top.h"
#include "verilated.h"

struct Inputs {
  uint64_t s_addr[2], m_r_data, s_w_data, line[2];
  uint32_t lite_data;
  uint8_t rst, s_valid[2], s_id[2], s_len[2], m_ready[2], m_r_valid, m_r_id, m_r_last, s_r_ready;
  uint8_t s_w_valid, s_w_last, m_w_ready, m_b_valid, m_b_id, s_b_ready, fault_ready;
  uint8_t lite_valid, lite_addr, lite_b_ready, lite_ar_valid, lite_r_ready, ar_ready, r_valid, r_resp;
};

struct Outputs {
  uint64_t m_addr[2], s_r_data, m_w_data, fault_addr, ar_addr;
  uint32_t lite_data;
  uint8_t s_ready[2], m_valid[2], m_in[2], m_memory[2], m_id[2], m_len[2], m_r_ready;
  uint8_t s_r_valid, s_r_id, s_r_resp, s_r_last, s_w_ready, m_w_valid, m_w_last, m_b_ready;
  uint8_t s_b_valid, s_b_id, s_b_resp, fault_valid, fault_write, fault_id, fault_status;
  uint8_t lite_ready, lite_b_valid, lite_b_resp, lite_ar_ready, lite_r_valid, ar_valid;
};

struct Model {
  VerilatedContext context;
  Vmmu_top top{&context};
};

static void set_data(VlWide<4> &port, uint64_t low, uint64_t high) {
  port[0] = static_cast<EData>(low);
  port[1] = static_cast<EData>(low >> 32);
  port[2] = static_cast<EData>(high);
  port[3] = static_cast<EData>(high >> 32);
}

static uint64_t low_of(const VlWide<4> &port) { return port[0] | static_cast<uint64_t>(port[1]) << 32; }

extern "C" {

Model *mmu_top_new() { return new Model; }

void mmu_top_free(Model *model) { delete model; }

void mmu_top_look(Model *model, const Inputs *in, Outputs *out) {
  Vmmu_top &top = model->top;
  top.Clk = 0;
  top.Rst = in->rst;
  top.S_Ar_Valid = in->s_valid[0];
  top.S_Ar_Addr = in->s_addr[0];
  top.S_Ar_Id = in->s_id[0];
  top.S_Ar_Len = in->s_len[0];
  top.S_Ar_Size = 4;
  top.S_Ar_Burst = 1;
  top.S_Aw_Valid = in->s_valid[1];
  top.S_Aw_Addr = in->s_addr[1];
  top.S_Aw_Id = in->s_id[1];
  top.S_Aw_Len = in->s_len[1];
  top.S_Aw_Size = 4;
  top.S_Aw_Burst = 1;
  top.M_Ar_Ready = in->m_ready[0];
  top.M_Aw_Ready = in->m_ready[1];
  top.M_R_Valid = in->m_r_valid;
  top.M_R_Id = in->m_r_id;
  set_data(top.M_R_Data, in->m_r_data, ~in->m_r_data);
  top.M_R_Resp = 0;
  top.M_R_Last = in->m_r_last;
  top.S_R_Ready = in->s_r_ready;
  top.S_W_Valid = in->s_w_valid;
  set_data(top.S_W_Data, in->s_w_data, ~in->s_w_data);
  top.S_W_Strb = 0xffff;
  top.S_W_Last = in->s_w_last;
  top.M_W_Ready = in->m_w_ready;
  top.M_B_Valid = in->m_b_valid;
  top.M_B_Id = in->m_b_id;
  top.M_B_Resp = 0;
  top.S_B_Ready = in->s_b_ready;
  top.Fault_Ready = in->fault_ready;
  top.Lite_AwValid = in->lite_valid;
  top.Lite_AwAddr = in->lite_addr;
  top.Lite_WValid = in->lite_valid;
  top.Lite_WData = in->lite_data;
  top.Lite_WStrb = 15;
  top.Lite_BReady = in->lite_b_ready;
  top.Lite_ArValid = in->lite_ar_valid;
  top.Lite_ArAddr = in->lite_addr;
  top.Lite_RReady = in->lite_r_ready;
  top.Axi_ArReady = in->ar_ready;
  top.Axi_RValid = in->r_valid;
  set_data(top.Axi_RData, in->line[0], in->line[1]);
  top.Axi_RResp = in->r_resp;
  top.eval();
  *out = Outputs{
      {top.M_Ar_Addr, top.M_Aw_Addr},
      low_of(top.S_R_Data),
      low_of(top.M_W_Data),
      top.Fault_Addr,
      top.Axi_ArAddr,
      top.Lite_RData,
      {top.S_Ar_Ready, top.S_Aw_Ready},
      {top.M_Ar_Valid, top.M_Aw_Valid},
      {top.M_Ar_InWindow, top.M_Aw_InWindow},
      {top.M_Ar_Memory, top.M_Aw_Memory},
      {top.M_Ar_Id, top.M_Aw_Id},
      {top.M_Ar_Len, top.M_Aw_Len},
      top.M_R_Ready,
      top.S_R_Valid,
      top.S_R_Id,
      top.S_R_Resp,
      top.S_R_Last,
      top.S_W_Ready,
      top.M_W_Valid,
      top.M_W_Last,
      top.M_B_Ready,
      top.S_B_Valid,
      top.S_B_Id,
      top.S_B_Resp,
      top.Fault_Valid,
      top.Fault_Write,
      top.Fault_Id,
      top.Fault_Status,
      top.Lite_AwReady,
      top.Lite_BValid,
      top.Lite_BResp,
      top.Lite_ArReady,
      top.Lite_RValid,
      top.Axi_ArValid,
  };
}

void mmu_top_clock(Model *model) {
  model->top.Clk = 1;
  model->top.eval();
}
}
