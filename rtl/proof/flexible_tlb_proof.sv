// What must hold of rtl/flexible_tlb.vhd, for eight pages, runs of up to four of them, and two entries.
//
// Looks and commands do whatever the ports allow. The watched page is any one. What it was put in with last is
// kept beside the entity: a look for it finds that, or nothing.
module flexible_tlb_proof (
    input clk,
    input look_valid, input [2:0] look_key,
    input cmd_valid, input [1:0] cmd_kind, input [2:0] cmd_first, input [3:0] cmd_bound,
    input cmd_writable, input [3:0] cmd_memory, input [3:0] cmd_frame
);
  // Cycles from the taking of a command to the next look or command.
  localparam BOUND = 30;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire look_ready, found_valid, found_held, found_writable, cmd_ready, twice;
  wire [3:0] found_memory, found_frame;
  wire [2:0] found_pages;
  wire [31:0] evictions;

  flexible_tlb dut (
      .Clk(clk), .Rst(rst),
      .Look_Valid(look_valid), .Look_Ready(look_ready), .Look_Key(look_key),
      .Found_Valid(found_valid), .Found_Held(found_held), .Found_Writable(found_writable),
      .Found_Memory(found_memory), .Found_Frame(found_frame), .Found_Pages(found_pages),
      .Cmd_Valid(cmd_valid), .Cmd_Ready(cmd_ready), .Cmd_Kind(cmd_kind), .Cmd_First(cmd_first),
      .Cmd_Bound(cmd_bound), .Cmd_Writable(cmd_writable), .Cmd_Memory(cmd_memory), .Cmd_Frame(cmd_frame),
      .Evictions(evictions), .Twice(twice));

  (* anyconst *) reg [2:0] page;

  wire look = look_valid && look_ready && started;
  wire cmd = cmd_valid && cmd_ready && started;
  wire covers = cmd && cmd_first <= page && {1'b0, page} < cmd_bound;
  wire fits = cmd_bound - cmd_first <= 4;
  // Beyond the last page there is none.
  always @* assume (cmd_bound <= 8 && cmd_kind != 3);

  // ---- what the page was put in with, and whether it may be held
  reg may = 0, writable;
  reg [3:0] memory, frame;
  always @(posedge clk) begin
    if (covers && cmd_kind == 0) may <= 0;
    if (covers && cmd_kind == 1) writable <= 0;
    if (covers && cmd_kind == 2) begin
      may <= fits;
      writable <= cmd_writable;
      memory <= cmd_memory;
      frame <= cmd_frame + page - cmd_first;
    end
  end

  // ---- looks: answered after two cycles, and at no other time
  reg [1:0] looked = 0, mine = 0;
  reg after = 0;
  wire held = mine[1] && found_valid && found_held;
  always @(posedge clk) begin
    looked <= {looked[0], look};
    mine <= {mine[0], look && look_key == page};
    after <= after || covers && cmd_kind == 0;
    if (started) begin
      assert (found_valid == looked[1]);
      assert (!twice);
      if (held) begin
        assert (may && found_writable == writable && found_memory == memory && found_frame == frame);
        assert (found_pages != 0 && found_pages <= 4);
      end
    end
  end

  // ---- everything ends within a bound, where it is left alone
  reg [4:0] age = 0, offered = 0;
  always @(posedge clk) if (started) begin
    age <= look_ready || cmd_ready || looked != 0 || cmd_valid ? 0 : age + 1;
    offered <= cmd_valid && !cmd_ready ? offered + 1 : 0;
    assert (age <= BOUND && offered <= BOUND);
  end

  // ---- what the proof would be empty without: it happens within the same steps
  always @(posedge clk) if (started) begin
    cover (held && found_pages == 4);
    cover (held && after);
    cover (held && !found_writable && memory == 3);
    cover (mine[1] && !found_held && may && found_valid);
    cover (held && evictions != 0);
  end
endmodule
