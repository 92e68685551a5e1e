// What must hold of rtl/bus_write_arbiter.vhd, for two writers, addresses of two bits, beats of a byte and two bursts whose
// data are to come.
//
// Writers and the memory do whatever the ports allow; with FAIR they keep nobody waiting, and each request goes on within
// a bound.
module bus_write_arbiter_proof (
    input clk,
    input [1:0] req_valid, input [3:0] req_addr, input [15:0] req_beats,
    input [1:0] data_valid, input [15:0] data, input [1:0] data_last, input [1:0] resp_ready,
    input aw_ready, input w_ready, input b_valid, input b_id, input [1:0] b_resp
);
  parameter FAIR = 0;
  localparam DEPTH = 2;
  // The data of the bursts before, and the other's.
  localparam BOUND = 4;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire [1:0] req_ready, data_ready, resp_valid, aw_addr;
  wire resp_error, aw_valid, aw_id, w_valid, w_last, b_ready;
  wire [7:0] w_data, aw_len;

  bus_write_arbiter dut (
      .Clk(clk), .Rst(rst), .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Addr(req_addr), .Req_Beats(req_beats),
      .Data_Valid(data_valid), .Data_Ready(data_ready), .Data(data), .Data_Strobe(2'b11), .Data_Last(data_last),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Error(resp_error),
      .Axi_AwValid(aw_valid), .Axi_AwReady(aw_ready), .Axi_AwAddr(aw_addr), .Axi_AwId(aw_id), .Axi_AwLen(aw_len),
      .Axi_AwSize(), .Axi_AwBurst(), .Axi_WValid(w_valid), .Axi_WReady(w_ready), .Axi_WData(w_data), .Axi_WStrb(),
      .Axi_WLast(w_last), .Axi_BValid(b_valid), .Axi_BReady(b_ready), .Axi_BId(b_id), .Axi_BResp(b_resp));

  wire [1:0] req = req_valid & req_ready & {2{started}};
  wire last = started && w_valid && w_ready && w_last;

  // ---- what was taken is shown, once; and the writers in that order, the oldest in bit 0
  reg full = 0, id;
  reg [1:0] addr;
  reg [2:0] order = 0;
  reg [1:0] waiting = 0;
  always @(posedge clk) if (started) begin
    assert (req != 3);
    assert (aw_valid == full);
    if (full) assert ({aw_id, aw_addr} == {id, addr});
    if (req != 0) assert (!full || aw_ready);
    full <= req != 0 || (full && !aw_ready);
    if (req != 0) {id, addr} <= {req[1], req[1] ? req_addr[3:2] : req_addr[1:0]};
    assert (waiting <= DEPTH);
    waiting <= waiting + (req != 0) - last;
    order <= (last ? order >> 1 : order) | (req[1] << (waiting - last));
    // Beats are those of the oldest burst's writer, and he is told so.
    assert (w_valid == (waiting != 0 && data_valid[order[0]]));
    if (w_valid) assert (w_data == (order[0] ? data[15:8] : data[7:0]) && w_last == data_last[order[0]]);
    assert (data_ready == (waiting != 0 && w_ready ? 2'd1 << order[0] : 2'd0));
    // A response is for its writer, and is his when he takes it.
    assert (resp_valid == (b_valid ? 2'd1 << b_id : 2'd0));
    assert ((b_valid && b_ready) == ((resp_valid & resp_ready) != 0));
    if (b_valid) assert (resp_error == b_resp[1]);
  end

  reg [1:0] p_req = 0;
  reg [3:0] p_addr;
  always @(posedge clk) {p_req, p_addr} <= {{2{started}} & req_valid & ~req_ready, req_addr};
  always @* begin
    assume (!p_req[0] || (req_valid[0] && req_addr[1:0] == p_addr[1:0]));
    assume (!p_req[1] || (req_valid[1] && req_addr[3:2] == p_addr[3:2]));
    if (FAIR) assume (aw_ready && w_ready && data_valid == 3 && data_last == 3);
  end

  reg [3:0] age0 = 0, age1 = 0;
  always @(posedge clk) if (FAIR && started) begin
    age0 <= req_valid[0] && !req_ready[0] ? age0 + 1 : 0;
    age1 <= req_valid[1] && !req_ready[1] ? age1 + 1 : 0;
    assert (age0 < BOUND && age1 < BOUND);
  end
endmodule
