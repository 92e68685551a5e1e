// What must hold of rtl/frame_store.vhd, for 13 frames in words of four, of which the first one is fixed.
//
// Requests are any, and their answers are taken at any time. One bit a frame is kept here too: what is given
// was free and is in use then, what comes back was in use and is free then, and nobody is refused who
// could have had a run.
module frame_store_proof (
    input clk,
    input op_valid, input op_give, input [4:0] op_size, input op_has_hint, input [3:0] op_first,
    input [4:0] promised, input resp_ready
);
  localparam FRAMES = 13;
  // Cycles from a request to its answer.
  localparam BOUND = 30;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire op_ready, resp_valid, resp_ok;
  wire [3:0] resp_first;
  wire [4:0] free;

  frame_store dut (
      .Clk(clk), .Rst(rst), .Fixed(4'd1), .Promised(promised), .Free(free),
      .Op_Valid(op_valid), .Op_Ready(op_ready), .Op_Give(op_give), .Op_Size(op_size),
      .Op_HasHint(op_has_hint), .Op_First(op_first),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Ok(resp_ok), .Resp_First(resp_first));

  wire op = op_valid && op_ready && started;
  wire resp = resp_valid && resp_ready && started;

  // ---- the request under way, and the frames in use; those beyond the memory are
  reg busy = 0, give;
  reg [4:0] size, at_most;
  reg [3:0] first;
  reg [15:0] used = 16'he001;
  reg p_resp = 0, p_ok;
  reg [3:0] p_first;
  reg [5:0] age = 0;

  function [15:0] run(input [3:0] first, input [4:0] size);
    run = (size > 4 ? 16'hffff : (17'd1 << (17'd1 << size)) - 17'd1) << first;
  endfunction
  function aligned(input [3:0] first, input [4:0] size);
    aligned = size <= 4 && (first & ((5'd1 << size) - 5'd1)) == 0;
  endfunction

  integer i;
  reg [4:0] count;
  reg could;
  always @* begin
    count = 0;
    could = 0;
    for (i = 0; i < 16; i = i + 1) begin
      count = count + !used[i];
      if (aligned(i, size) && (used & run(i, size)) == 0) could = 1;
    end
  end

  // Who promises frames does not change that while somebody asks.
  always @* if (busy) assume (promised == at_most);

  always @(posedge clk) if (started) begin
    if (resp) busy <= 0;
    age <= busy && !resp_valid ? age + 1 : 0;
    assert (age <= BOUND);
    if (op) begin
      assert (!busy);
      busy <= 1;
      {give, size, first, at_most} <= {op_give, op_size, op_first, promised};
    end
    if (resp_valid) assert (busy);
    // A run is free or in use as soon as that is said.
    if (resp_valid && !p_resp && resp_ok) begin
      if (!give) begin
        assert (aligned(resp_first, size) && (used & run(resp_first, size)) == 0);
        assert (count >= promised + (5'd1 << size));
        used <= used | run(resp_first, size);
      end else begin
        assert (aligned(first, size) && first == resp_first && first + (5'd1 << size) <= FRAMES);
        assert ((~used & run(first, size)) == 0);
        used <= used & ~run(first, size);
      end
    end
    if (resp_valid && !p_resp && !resp_ok) begin
      if (!give) assert (size > 4 || count < promised + (6'd1 << size) || !could);
      else assert (!aligned(first, size) || first + (6'd1 << size) > FRAMES || (~used & run(first, size)) != 0);
    end
    if (!busy && op_ready) assert (free == count);
    // ---- what is shown stays until it is taken
    p_resp <= resp_valid && !resp_ready;
    {p_ok, p_first} <= {resp_ok, resp_first};
    if (p_resp) assert (resp_valid && {resp_ok, resp_first} == {p_ok, p_first});
  end
endmodule
