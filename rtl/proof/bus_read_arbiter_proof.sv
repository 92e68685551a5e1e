// What must hold of rtl/bus_read_arbiter.vhd, for two readers, addresses of two bits and beats of a byte.
//
// Readers and the memory do whatever the ports allow; with FAIR they keep nobody waiting, and each request goes on within
// a bound.
module bus_read_arbiter_proof (
    input clk,
    input [1:0] req_valid, input [3:0] req_addr, input [15:0] req_beats, input [1:0] data_ready,
    input ar_ready, input r_valid, input r_id, input [7:0] r_data, input [1:0] r_resp, input r_last
);
  parameter FAIR = 0;
  // What is shown, and the other's.
  localparam BOUND = 2;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire [1:0] req_ready, data_valid, ar_addr;
  wire [7:0] data, ar_len;
  wire data_last, data_error, ar_valid, ar_id, r_ready;

  bus_read_arbiter dut (
      .Clk(clk), .Rst(rst), .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Addr(req_addr), .Req_Beats(req_beats),
      .Data_Valid(data_valid), .Data_Ready(data_ready), .Data(data), .Data_Last(data_last), .Data_Error(data_error),
      .Axi_ArValid(ar_valid), .Axi_ArReady(ar_ready), .Axi_ArAddr(ar_addr), .Axi_ArId(ar_id), .Axi_ArLen(ar_len),
      .Axi_ArSize(), .Axi_ArBurst(), .Axi_RValid(r_valid), .Axi_RReady(r_ready), .Axi_RId(r_id), .Axi_RData(r_data),
      .Axi_RResp(r_resp), .Axi_RLast(r_last));

  wire [1:0] req = req_valid & req_ready & {2{started}};
  wire shown_taken = ar_valid && ar_ready;

  // ---- what was taken is shown, once, until the memory takes it; a beat is for its reader
  reg full = 0, id;
  reg [1:0] addr;
  reg [7:0] len;
  wire [7:0] beats = req[1] ? req_beats[15:8] : req_beats[7:0];
  always @(posedge clk) begin
    if (started) begin
      assert (req != 3);
      assert (ar_valid == full);
      if (full) assert ({ar_id, ar_addr, ar_len} == {id, addr, len});
      if (req != 0) assert (!full || ar_ready);
      full <= req != 0 || (full && !ar_ready);
      if (req != 0) {id, addr, len} <= {req[1], req[1] ? req_addr[3:2] : req_addr[1:0], beats - 8'd1};
      assert (data_valid == (r_valid ? 2'd1 << r_id : 2'd0));
      assert ((r_valid && r_ready) == ((data_valid & data_ready) != 0));
      if (r_valid) assert ({data, data_last, data_error} == {r_data, r_last, r_resp[1]});
    end
  end

  reg [1:0] p_req = 0;
  reg [3:0] p_addr;
  reg [15:0] p_beats;
  always @(posedge clk) {p_req, p_addr, p_beats} <= {{2{started}} & req_valid & ~req_ready, req_addr, req_beats};
  always @* begin
    assume (!p_req[0] || (req_valid[0] && req_addr[1:0] == p_addr[1:0] && req_beats[7:0] == p_beats[7:0]));
    assume (!p_req[1] || (req_valid[1] && req_addr[3:2] == p_addr[3:2] && req_beats[15:8] == p_beats[15:8]));
    if (FAIR) assume (ar_ready);
  end

  reg [3:0] age0 = 0, age1 = 0;
  always @(posedge clk) if (FAIR && started) begin
    age0 <= req_valid[0] && !req_ready[0] ? age0 + 1 : 0;
    age1 <= req_valid[1] && !req_ready[1] ? age1 + 1 : 0;
    assert (age0 < BOUND && age1 < BOUND);
  end
endmodule
