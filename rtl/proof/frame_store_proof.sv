// What must hold of rtl/frame_store.vhd, for 13 frames in words of four, of which the first one is fixed.
//
// Requests are any, also while the one before has no answer, and answers are taken at any time. One bit a frame
// is kept here too: what is given was free and is in use then, what comes back was in use and is free then, and
// nobody is refused who could have had a run.
module frame_store_proof (
    input clk,
    input op_valid, input op_give, input [4:0] op_size, input op_has_hint, input [3:0] op_first,
    input [4:0] promised, input op_next, input resp_ready
);
  localparam FRAMES = 13;
  // Cycles to an answer while none is shown; few enough to be passed within the steps of the proof.
  localparam BOUND = 13;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire op_ready, resp_valid, resp_ok;
  wire [3:0] resp_first;
  wire [4:0] free;

  frame_store dut (
      .Clk(clk), .Rst(rst), .Fixed(4'd1), .Promised(promised), .Free(free),
      .Op_Valid(op_valid), .Op_Ready(op_ready), .Op_Give(op_give), .Op_Size(op_size),
      .Op_HasHint(op_has_hint), .Op_First(op_first), .Op_Next(next),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Ok(resp_ok), .Resp_First(resp_first));

  // The frame behind the last one is a hint for single frames alone.
  wire next = op_next && op_has_hint && !op_give && op_size == 0;

  wire op = op_valid && op_ready && started;
  wire resp = resp_valid && resp_ready && started;

  // ---- the requests under way, the oldest one first, and the frames in use; those beyond the memory are
  reg [2:0] waiting = 0;
  reg gives [0:3];
  reg [4:0] sizes [0:3], promises [0:3];
  reg [3:0] firsts [0:3];
  wire give = gives[0];
  wire [4:0] size = sizes[0], at_most = promises[0];
  wire [3:0] first = firsts[0];
  reg [15:0] used = 16'he001;
  reg p_resp = 0, p_ok;
  reg [3:0] p_first;
  reg [4:0] age = 0;
  // An answer is shown for the first time.
  wire shown = resp_valid && !p_resp && started;

  function [15:0] run(input [3:0] first, input [4:0] size);
    run = (size > 4 ? 16'hffff : (17'd1 << (17'd1 << size)) - 17'd1) << first;
  endfunction
  function aligned(input [3:0] first, input [4:0] size);
    aligned = size <= 4 && (first & ((5'd1 << size) - 5'd1)) == 0;
  endfunction

  integer i, j;
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

  always @(posedge clk) if (started) begin
    waiting <= waiting + op - shown;
    assert (waiting <= 4);
    age <= waiting != 0 && !resp_valid ? age + 1 : 0;
    assert (age <= BOUND);
    if (shown) begin
      assert (waiting != 0);
      for (j = 0; j < 3; j = j + 1) begin
        gives[j] <= gives[j + 1]; sizes[j] <= sizes[j + 1]; promises[j] <= promises[j + 1]; firsts[j] <= firsts[j + 1];
      end
    end
    if (op) begin
      gives[waiting - shown] <= op_give; sizes[waiting - shown] <= op_size;
      promises[waiting - shown] <= promised; firsts[waiting - shown] <= op_first;
    end
    // A run is free or in use as soon as that is said.
    if (shown && resp_ok) begin
      if (!give) begin
        assert (aligned(resp_first, size) && (used & run(resp_first, size)) == 0);
        assert (count >= at_most + (5'd1 << size));
        used <= used | run(resp_first, size);
      end else begin
        assert (aligned(first, size) && first == resp_first && first + (5'd1 << size) <= FRAMES);
        assert ((~used & run(first, size)) == 0);
        used <= used & ~run(first, size);
      end
    end
    if (shown && !resp_ok) begin
      if (!give) assert (size > 4 || count < at_most + (6'd1 << size) || !could);
      else assert (!aligned(first, size) || first + (6'd1 << size) > FRAMES || (~used & run(first, size)) != 0);
    end
    if (waiting == 0 && op_ready) assert (free == count);
    // ---- what is shown stays until it is taken
    p_resp <= resp_valid && !resp_ready;
    {p_ok, p_first} <= {resp_ok, resp_first};
    if (p_resp) assert (resp_valid && {resp_ok, resp_first} == {p_ok, p_first});
  end

  // ---- what the proof would be empty without: it happens within the same steps
  reg [3:0] searched = 0;
  reg gave = 0, refused = 0;
  always @(posedge clk) if (started) begin
    if (shown) begin
      searched <= give || !resp_ok ? 0 : searched + (size == 0);
      gave <= gave || give && resp_ok;
      refused <= refused || !give && !resp_ok;
    end
    // Single frames in a row, of two words; one after a frame has come back; after nothing could be had.
    cover (searched == 4 && op_ready);
    cover (shown && !give && resp_ok && size == 0 && gave);
    cover (shown && !give && resp_ok && refused);
    cover (shown && !give && resp_ok && size == 2);
    cover (shown && give && !resp_ok);
    cover (waiting == 2);
    cover (waiting == 1 && p_resp);
  end
endmodule
