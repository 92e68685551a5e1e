// What must hold of rtl/command_arbiter.vhd, for three requesters.
//
// Requesters show commands and take answers as they like, and so does the allocator; an answer is the command
// that it is for. With FAIR nobody is kept waiting, and each is served within a bound.
module command_arbiter_proof (
    input clk,
    input [2:0] in_valid, input [5:0] in_cmd, input [2:0] out_ready, input cmd_ready, input resp_valid,
    input [1:0] watch
);
  parameter FAIR = 0;
  // Three commands of three cycles, and what is under way.
  localparam BOUND = 12;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire [2:0] in_ready, out_valid;
  wire [1:0] out_resp, cmd;
  wire cmd_valid, resp_ready;

  // ---- at the allocator, and what it answers
  reg serves = 0;
  reg [1:0] served;

  command_arbiter dut (
      .Clk(clk), .Rst(rst), .In_Valid(in_valid), .In_Ready(in_ready), .In_Cmd(in_cmd),
      .Out_Valid(out_valid), .Out_Ready(out_ready), .Out_Resp(out_resp),
      .Cmd_Valid(cmd_valid), .Cmd_Ready(cmd_ready), .Cmd(cmd),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp(served));

  // ---- of each requester: a command that is not answered, and which
  reg [2:0] waits = 0, p_valid = 0;
  reg [5:0] asked, p_cmd;
  reg p_cmd_valid = 0;
  reg [1:0] p_shown;
  reg [1:0] watched;
  reg [4:0] age = 0;
  // Commands of others that were taken while the watched one was shown.
  reg [1:0] others = 0;

  always @(posedge clk) watched <= started ? watched : watch;

  integer i;
  always @* begin
    assume (watch < 3);
    if (!started) assume (in_valid == 0 && !resp_valid && !cmd_ready);
    if (!serves) assume (!resp_valid);
    for (i = 0; i < 3; i = i + 1) begin
      if (p_valid[i]) assume (in_valid[i] && in_cmd[2 * i +: 2] == p_cmd[2 * i +: 2]);
      if (waits[i]) assume (!in_valid[i]);
    end
    if (FAIR) assume (&out_ready);
    if (FAIR && started && !serves) assume (cmd_ready);
    if (FAIR && serves) assume (resp_valid);
  end

  always @(posedge clk) if (started) begin
    p_valid <= in_valid & ~in_ready;
    p_cmd <= in_cmd;
    assert ((in_ready & ~in_valid) == 0);
    for (i = 0; i < 3; i = i + 1) begin
      if (in_valid[i] && in_ready[i]) begin
        waits[i] <= 1;
        asked[2 * i +: 2] <= in_cmd[2 * i +: 2];
      end
      // ---- an answer is for whose command it is, and there is one for each
      if (out_valid[i]) assert (waits[i] && serves && out_resp == asked[2 * i +: 2]);
      if (out_valid[i] && out_ready[i]) waits[i] <= 0;
    end
    assert ((out_valid & (out_valid - 3'd1)) == 0);
    assert ((in_ready & (in_ready - 3'd1)) == 0);
    if (cmd_valid) assert (!serves);
    if (cmd_valid && cmd_ready) {serves, served} <= {1'b1, cmd};
    if (serves && resp_valid && resp_ready) serves <= 0;
    // ---- what is shown stays until it is taken
    p_cmd_valid <= cmd_valid && !cmd_ready;
    p_shown <= cmd;
    if (p_cmd_valid) assert (cmd_valid && cmd == p_shown);
    // ---- nobody is passed by twice
    if (in_valid[watched] && !in_ready[watched]) others <= others + (in_ready != 0);
    else others <= 0;
    assert (others <= 2);
    age <= (in_valid[watched] && !in_ready[watched]) || waits[watched] ? age + 1 : 0;
    if (FAIR) assert (age <= BOUND);
  end
endmodule
