// What must hold of rtl/mmu_control.vhd, for a window of two pages' bits, a space of three, and frames of two.
//
// Who writes and reads registers, and who takes commands, do whatever the ports allow.
module mmu_control_proof (
    input clk,
    input aw_valid, input [7:0] aw_addr, input w_valid, input [31:0] w_data, input [3:0] w_strb, input b_ready,
    input ar_valid, input [7:0] ar_addr, input r_ready,
    input root_ready, input inval_ready, input inval_done, input cmd_ready, input [31:0] evictions
);
  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire aw_ready, w_ready, b_valid, ar_ready, r_valid, root_valid, inval_valid, cmd_valid, cmd_writable;
  wire [1:0] b_resp, r_resp, cmd_kind, cmd_frame;
  wire [2:0] first, last;
  wire [63:0] space, space_root;
  wire [31:0] r_data;
  wire [0:0] root_index;
  wire [63:0] root_word;
  wire [3:0] cmd_memory;
  wire [32:3] base;

  mmu_control dut (
      .Clk(clk), .Rst(rst),
      .Axi_AwValid(aw_valid), .Axi_AwReady(aw_ready), .Axi_AwAddr(aw_addr),
      .Axi_WValid(w_valid), .Axi_WReady(w_ready), .Axi_WData(w_data), .Axi_WStrb(w_strb),
      .Axi_BValid(b_valid), .Axi_BReady(b_ready), .Axi_BResp(b_resp),
      .Axi_ArValid(ar_valid), .Axi_ArReady(ar_ready), .Axi_ArAddr(ar_addr),
      .Axi_RValid(r_valid), .Axi_RReady(r_ready), .Axi_RData(r_data), .Axi_RResp(r_resp),
      .Window_Base(base), .Space_Base(space), .Space_Root(space_root), .Root_Valid(root_valid), .Root_Ready(root_ready), .Root_Index(root_index), .Root_Word(root_word),
      .Inval_Valid(inval_valid), .Inval_Ready(inval_ready), .Inval_Done(inval_done),
      .Cmd_Valid(cmd_valid), .Cmd_Ready(cmd_ready), .Cmd_Kind(cmd_kind), .Cmd_Writable(cmd_writable),
      .Cmd_Memory(cmd_memory), .Cmd_Frame(cmd_frame), .First(first), .Last(last), .Evictions(evictions));

  // ---- the registers as they were written, and the write that is not answered: what it does, and whether that is done
  reg [63:0] m_base = 0, m_word;
  reg [0:0] m_index;
  reg [2:0] m_first, m_last;
  reg [1:0] m_frame;
  reg [63:0] m_space = 0, m_space_root = 0;
  reg [31:0] m_space_low;
  reg has_space_low = 0;
  reg has_word_low = 0, has_word = 0, has_index = 0, has_first = 0, has_last = 0, has_frame = 0;
  reg busy = 0, is_done, is_error;
  reg [1:0] does;
  localparam NOTHING = 0, ROOT = 1, COMMAND = 2, INVALIDATE = 3;
  reg [31:0] m_command;
  wire write = started && aw_valid && aw_ready;
  wire whole = &w_strb;
  wire known = aw_addr <= 8'h34 && aw_addr != 8'h24 && aw_addr[1:0] == 0;
  wire nowhere = aw_addr == 8'h20 && m_first > m_last;
  wire ends = (does == ROOT && root_valid && root_ready) || (does == COMMAND && cmd_valid && cmd_ready) ||
              (does == INVALIDATE && inval_valid && inval_ready);
  always @(posedge clk) begin
    if (started) begin
      assert (aw_ready == w_ready);
      if (aw_ready) assert (aw_valid && w_valid && !busy);
      // It is answered once, when what it does was taken.
      if (b_valid) assert (busy && (does == NOTHING || is_done) && b_resp == (is_error ? 2'b10 : 2'b00));
      assert (root_valid == (busy && does == ROOT && !is_done));
      assert (cmd_valid == (busy && does == COMMAND && !is_done));
      assert (inval_valid == (busy && does == INVALIDATE && !is_done));
      assert (base == m_base[32:3] && space == m_space && space_root == m_space_root);
      if (root_valid) assert (root_index == m_index && root_word == m_word);
      if (cmd_valid || inval_valid) assert (first == m_first && last == m_last && first <= last);
      if (cmd_valid)
        assert (cmd_frame == m_frame && cmd_kind == m_command[1:0] && cmd_writable == m_command[4] &&
                cmd_memory == m_command[11:8]);
    end
    if (write) begin
      busy <= 1;
      is_done <= 0;
      is_error <= !whole || !known || nowhere;
      does <= NOTHING;
      if (whole) case (aw_addr)
        8'h00: m_base[31:0] <= w_data;
        8'h04: m_base[63:32] <= w_data;
        8'h08: {has_index, m_index} <= {1'b1, w_data[0]};
        8'h0c: {has_word_low, m_word[31:0]} <= {1'b1, w_data};
        8'h10: {does, m_word[63:32]} <= {2'd1, w_data};
        8'h14: {has_first, m_first} <= {1'b1, w_data[2:0]};
        8'h18: {has_last, m_last} <= {1'b1, w_data[2:0]};
        8'h1c: {has_frame, m_frame} <= {1'b1, w_data[1:0]};
        8'h20: begin
          m_command <= w_data;
          if (!nowhere) does <= w_data[1:0] == 3 ? INVALIDATE : COMMAND;
        end
        8'h28: m_space[31:0] <= w_data;
        8'h2c: m_space[63:32] <= w_data;
        8'h30: {has_space_low, m_space_low} <= {1'b1, w_data};
        8'h34: m_space_root <= {w_data, m_space_low};
        default: ;
      endcase
    end
    if (busy && ends) is_done <= 1;
    if (busy && ends && does == ROOT) m_index <= m_index + 1;
    if (started && b_valid && b_ready) busy <= 0;
  end

  // ---- reads: one at a time, answered with what was so when it was taken
  reg reading = 0, draining = 0;
  reg [7:0] r_addr;
  reg [31:0] r_what;
  wire read = started && ar_valid && ar_ready;
  always @(posedge clk) begin
    if (started) assert (r_valid == reading);
    if (started && r_valid) begin
      assert (r_resp == (r_addr == 8'h20 || r_addr == 8'h24 ? 2'b00 : 2'b10));
      assert (r_data == r_what);
    end
    if (r_valid && r_ready) reading <= 0;
    if (read) begin
      assert (!reading);
      reading <= 1;
      r_addr <= ar_addr;
      r_what <= ar_addr == 8'h20 ? {31'd0, draining} : ar_addr == 8'h24 ? evictions : 0;
    end
    draining <= started && ((inval_valid && inval_ready) || (draining && !inval_done));
  end

  reg p_aw = 0, p_w = 0, p_ar = 0;
  reg [7:0] p_addr, p_ar_addr;
  reg [35:0] p_data;
  always @(posedge clk) begin
    p_aw <= started && aw_valid && !aw_ready;
    p_w <= started && w_valid && !w_ready;
    p_ar <= started && ar_valid && !ar_ready;
    {p_addr, p_data, p_ar_addr} <= {aw_addr, w_data, w_strb, ar_addr};
  end
  always @* begin
    assume (!p_aw || (aw_valid && aw_addr == p_addr));
    assume (!p_w || (w_valid && {w_data, w_strb} == p_data));
    assume (!p_ar || (ar_valid && ar_addr == p_ar_addr));
    // What was never written is not used: registers have no value after a reset.
    if (write && whole) begin
      assume (aw_addr != 8'h10 || (has_index && has_word_low));
      assume (aw_addr != 8'h34 || has_space_low);
      assume (aw_addr != 8'h20 || (has_first && has_last && has_frame));
    end
  end
endmodule
