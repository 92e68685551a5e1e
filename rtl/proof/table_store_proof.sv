// What must hold of rtl/table_store.vhd, for frames of two tables, of which there are four, and one ready table.
//
// Tables are taken and come back in any order, zeroed or not; the frame store gives any frame that is free, or
// none. No table is given twice, each lies in a frame that was given, a frame goes back when it has no table
// any more and not before, and what is said to be zeroed has come back so.
module table_store_proof (
    input clk,
    input op_valid, input op_give, input op_zero, input op_not_ready, input [2:0] op_number,
    input frame_ready, input given_valid, input given_ok, input [1:0] given_first
);
  // Cycles from a request to its end, but for those in which it waits for the frame store.
  localparam BOUND = 16;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire op_ready, ok, zero, wants, frame_valid, frame_give;
  wire [1:0] chunk, frame_first;
  wire [2:0] number;
  wire [4:0] frame_size;

  // ---- tables that are out, those that came back zeroed, and the chunk of each; frames that were given
  reg [7:0] out = 0, zeroed = 0;
  reg [15:0] chunks;
  reg [3:0] used = 0;
  wire [1:0] op_chunk = chunks >> (2 * op_number);

  table_store dut (
      .Clk(clk), .Rst(rst), .Op_Valid(op_valid), .Op_Ready(op_ready), .Op_Give(op_give), .Op_Zero(op_zero),
      .Op_NotReady(op_not_ready), .Op_Chunk(op_chunk), .Op_Number(op_number),
      .Ok(ok), .Zero(zero), .Chunk(chunk), .Number(number), .Wants(wants),
      .Frame_Valid(frame_valid), .Frame_Ready(frame_ready), .Frame_Give(frame_give), .Frame_Size(frame_size),
      .Frame_First(frame_first), .Given_Valid(given_valid), .Given_Ok(given_ok), .Given_First(given_first));

  wire op = op_valid && op_ready && started;
  wire asks = frame_valid && frame_ready && started;

  reg busy = 0, gives, asking = 0, giving;
  reg [1:0] giving_frame;
  reg [4:0] age = 0;

  always @* begin
    if (!started) assume (!op_valid && !given_valid);
    if (op_valid && op_give) assume (out[op_number]);
    if (!asking) assume (!given_valid);
    if (given_valid && given_ok && !giving) assume (!used[given_first]);
    if (given_valid && giving) assume (given_ok);
  end

  integer i;
  always @(posedge clk) if (started) begin
    age <= op_ready || (frame_valid && !frame_ready) || asking ? 0 : age + 1;
    assert (age <= BOUND);
    // ---- frames
    if (asks) begin
      asking <= 1;
      {giving, giving_frame} <= {frame_give, frame_first};
      if (frame_give) assert (used[frame_first] && out[2 * frame_first] == 0 && out[2 * frame_first + 1] == 0);
      assert (frame_size == 0);
    end
    if (given_valid && asking) begin
      asking <= 0;
      if (given_ok) used[giving ? giving_frame : given_first] <= !giving;
    end
    // ---- tables
    if (op) begin
      busy <= 1;
      gives <= op_give;
      if (op_give) begin
        out[op_number] <= 0;
        zeroed[op_number] <= op_zero;
      end
    end
    if (busy && op_ready) begin
      if (!op) busy <= 0;
      if (!gives && ok) begin
        assert (!out[number]);
        assert (used[number[2:1]]);
        if (zero) assert (zeroed[number]);
        out[number] <= 1;
        zeroed[number] <= 0;
        for (i = 0; i < 8; i = i + 1) if (i == number) chunks[2 * i +: 2] <= chunk;
      end
    end
  end
  // A table that has just been given comes back at once only when it is known.
  always @* if (busy && op_ready && !gives) assume (!op_valid);
endmodule
