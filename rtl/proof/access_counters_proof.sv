// What must hold of rtl/access_counters.vhd, for four groups of each of two address spaces, of which two are
// counted at once, and counts up to 7.
//
// Accesses, clearings and whoever takes notices do what the ports allow. The watched group is any one. With FEW
// no more groups are reached for than are counted, notices are taken at once and nobody clears while others
// wait: then nothing is forgotten, and everything ends within a bound.
module access_counters_proof (
    input clk,
    input access_valid, input access_space, input [2:0] access_page, input [1:0] access_times,
    input clear_valid, input clear_all, input clear_space, input [2:0] clear_first, input [2:0] clear_last,
    input [2:0] threshold, input notice_ready
);
  parameter FEW = 0;
  localparam BOUND = 10;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire access_ready, clear_ready, notice_valid, notice_space;
  wire [1:0] notice_group;
  wire [2:0] notice_count;
  wire [31:0] forgotten;

  access_counters dut (
      .Clk(clk), .Rst(rst),
      .Access_Valid(access_valid), .Access_Ready(access_ready), .Access_Space(access_space),
      .Access_Page(access_page), .Access_Times(access_times),
      .Clear_Valid(clear_valid), .Clear_Ready(clear_ready), .Clear_All(clear_all), .Clear_Space(clear_space),
      .Clear_First(clear_first), .Clear_Last(clear_last), .Threshold(threshold),
      .Notice_Valid(notice_valid), .Notice_Ready(notice_ready), .Notice_Space(notice_space),
      .Notice_Group(notice_group), .Notice_Count(notice_count), .Forgotten(forgotten)
  );

  // ---- the watched group, and another one
  (* anyconst *) wire space, other_space;
  (* anyconst *) wire [1:0] group, other_group;

  wire reached = started && access_valid && access_ready;
  wire mine = reached && access_space == space && access_page[2:1] == group;
  wire cleared = started && clear_valid && clear_ready;
  wire within = clear_space == space && clear_first[2:1] <= group && group <= clear_last[2:1];
  wire anew = cleared && (clear_all || within);

  wire is_other = access_space == other_space && access_page[2:1] == other_group;
  wire is_mine = access_space == space && access_page[2:1] == group;
  always @* if (FEW && started) begin
    assume (!access_valid || is_mine || is_other);
    assume (notice_ready);
  end

  // ---- what was counted of it, at most, since it was cleared
  reg [2:0] limit;
  reg [3:0] sum = 0;
  reg told = 0;
  wire [4:0] more = sum + access_times;
  always @(posedge clk) begin
    if (rst || (cleared && clear_all)) limit <= threshold == 0 ? 1 : threshold;
    if (rst || anew) sum <= 0;
    else if (mine) sum <= more > 7 ? 7 : more;
  end

  // ---- notices
  reg p_shown = 0, p_space;
  reg [1:0] p_group;
  reg [2:0] p_count;
  wire shows = started && notice_valid && !p_shown;
  wire tells = shows && notice_space == space && notice_group == group;
  always @(posedge clk) begin
    p_shown <= started && notice_valid && !notice_ready;
    {p_space, p_group, p_count} <= {notice_space, notice_group, notice_count};
    if (started && p_shown)
      assert (notice_valid && {notice_space, notice_group, notice_count} == {p_space, p_group, p_count});
    if (tells) begin
      assert (!told);
      assert (notice_count >= limit && notice_count <= sum);
    end
    told <= started && !anew && (told || tells);
  end

  // ---- nothing is left out
  reg [3:0] age = 0, offered = 0;
  reg p_access = 0;
  always @(posedge clk) begin
    p_access <= started && access_valid && !access_ready;
    if (FEW && started) begin
      if (p_access) assume (access_valid && !clear_valid);
      age <= sum >= limit && !told && !tells && !clear_valid ? age + 1 : 0;
      offered <= access_valid && !access_ready ? offered + 1 : 0;
      assert (age <= BOUND && offered <= BOUND);
      assert (forgotten == 0);
    end
  end
endmodule
