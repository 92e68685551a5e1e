// What must hold of rtl/shoot_down.vhd, for a window of 8 pages.
//
// The allocator asks for what it may: of a command and of the sweep one invalidation at a time. Translators
// take their time; with FAIR they do not, and everything ends within a bound. The watched page is any one.
module shoot_down_proof (
    input clk,
    input made, input command, input sweep, input [2:0] first, input [2:0] last,
    input ready, input done, input [2:0] page
);
  parameter FAIR = 0;
  localparam BOUND = 16;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire told, command_done, sweep_done, valid;
  wire [2:0] inval_first, inval_last;

  shoot_down dut (
      .Clk(clk), .Rst(rst), .Made_Valid(made), .Command(command), .Sweep(sweep), .First(first), .Last(last),
      .Told(told), .Command_Done(command_done), .Sweep_Done(sweep_done),
      .Inval_Valid(valid), .Inval_Ready(ready), .Inval_First(inval_first), .Inval_Last(inval_last), .Inval_Done(done));

  reg [2:0] watched;
  always @(posedge clk) watched <= started ? watched : page;

  wire takes = valid && ready;
  wire has = started && first <= watched && watched <= last;
  wire told_now = takes && inval_first <= watched && watched <= inval_last;

  // ---- what is asked for: of the watched page, whether its invalidation is still to be taken
  reg commands = 0, sweeps = 0, running = 0;
  reg made_waits = 0, command_waits = 0, sweep_waits = 0;
  reg [2:0] c_first, c_last, s_first, s_last;
  reg command_taken = 0, sweep_taken = 0;
  reg [5:0] age = 0;
  reg p_valid = 0;
  reg [2:0] p_first, p_last;
  wire busy = commands || sweeps || !told;

  always @* begin
    assume (first <= last);
    assume (made + command + sweep <= 1);
    if (!started) assume (!made && !command && !sweep && !ready && !done);
    if (commands) assume (!command);
    if (sweeps) assume (!sweep);
    // What is done was taken, and is one.
    if (!running) assume (!done);
    // Translators take one if the one before is done.
    if (running) assume (!ready);
    if (FAIR) assume (!(age > 4) || !made);
    if (FAIR && started && !running) assume (ready);
    if (FAIR && running) assume (done);
  end

  always @(posedge clk) if (started) begin
    running <= takes || running && !done;
    if (command) {commands, c_first, c_last, command_taken} <= {1'b1, first, last, 1'b0};
    if (sweep) {sweeps, s_first, s_last, sweep_taken} <= {1'b1, first, last, 1'b0};
    if (takes && commands && inval_first == c_first && inval_last == c_last) command_taken <= 1;
    if (takes && sweeps && inval_first == s_first && inval_last == s_last) sweep_taken <= 1;
    // ---- it is done once, after it was taken
    if (command_done) begin
      assert (commands && command_taken && done);
      commands <= 0;
    end
    if (sweep_done) begin
      assert (sweeps && sweep_taken && done);
      sweeps <= 0;
    end
    assert (!(command_done && sweep_done));
    // ---- a page that became valid is told, before that is said
    if (made && has) made_waits <= 1;
    else if (told_now) made_waits <= 0;
    if (made_waits) assert (!told);
    // ---- what is shown stays until it is taken
    p_valid <= valid && !ready;
    {p_first, p_last} <= {inval_first, inval_last};
    if (p_valid) assert (valid && {inval_first, inval_last} == {p_first, p_last});
    if (valid) assert (inval_first <= inval_last);
    age <= busy && !made && !command && !sweep ? age + 1 : 0;
    if (FAIR) assert (age <= BOUND);
  end
endmodule
