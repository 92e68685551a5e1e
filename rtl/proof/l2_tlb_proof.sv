// What must hold of rtl/l2_tlb.vhd, for a window of 4 pages, two sets of two ways, and two requests that wait.
//
// Reader, walker and invalidations do whatever the ports allow; with FAIR they keep nobody waiting, and
// everything ends within a bound. The watched request is any one, the watched page any one. The walker's
// answers say what they are: `memory` is the page that was walked for, bit 0 of `frame` whether the walk
// was asked for after the watched event, bit 1 whether it is writable, bit 2 whether it is no fault. The
// watched event is any invalidation of the watched page. Of `size`, which is not 0, bit 0 is whether the walk was
// asked for after the second watched event, which is any invalidation at all.
module l2_tlb_proof (
    input clk,
    input req_valid, input [1:0] req_page, input skip, input resp_ready, input walk_ready,
    input came_valid, input [2:0] came_status, input [2:0] came_frame, input [4:0] came_size,
    input inval_valid, input [1:0] inval_first, input [1:0] inval_last,
    input watch, input mark, input mark_any
);
  parameter FAIR = 0;
  // A request in the set that is read, and those in the queue.
  localparam MOST = 3;
  localparam BOUND = 14;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire req_ready, resp_valid, resp_writable, walk_valid, came_ready, inval_ready;
  wire [2:0] resp_status, resp_frame;
  wire [3:0] resp_memory, came_memory;
  wire [4:0] resp_size;
  wire [1:0] walk_page;

  l2_tlb dut (
      .Clk(clk), .Rst(rst),
      .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Page(req_page), .Look_Skip(is_skipped),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Status(resp_status),
      .Resp_Writable(resp_writable), .Resp_Memory(resp_memory), .Resp_Size(resp_size), .Resp_Frame(resp_frame),
      .Walk_Valid(walk_valid), .Walk_Ready(walk_ready), .Walk_Page(walk_page),
      .Came_Valid(came_valid), .Came_Ready(came_ready), .Came_Status(came_status),
      .Came_Writable(came_frame[1]), .Came_Memory(came_memory), .Came_Size(came_size), .Came_Frame(came_frame),
      .Inval_Valid(inval_valid), .Inval_Ready(inval_ready), .Inval_First(inval_first), .Inval_Last(inval_last));

  wire req = req_valid && req_ready && started;
  wire resp = resp_valid && resp_ready && started;
  wire walk = walk_valid && walk_ready && started;
  wire came = came_valid && came_ready && started;
  wire inval = inval_valid && inval_ready && started;

  (* anyconst *) reg [1:0] page;

  // Whether the page that was taken last is found elsewhere: told in the cycle after it was, and until the next is. It is gone.
  reg is_new = 0, was_skipped = 0;
  wire is_skipped = is_new ? skip : was_skipped;
  wire gone = is_new && skip;
  always @(posedge clk) begin
    is_new <= req;
    was_skipped <= is_skipped;
    if (started && is_skipped) assert (!walk_valid);
  end

  reg [2:0] waiting = 0, walks = 0;
  always @(posedge clk) begin
    waiting <= waiting + req - resp - gone;
    walks <= walks + walk - came;
    if (resp) assert (waiting != gone);
    if (started) assert (waiting <= MOST && walks <= MOST);
  end

  // ---- the watched event
  reg happened = 0, disturbed = 0;
  always @(posedge clk) if (mark_any && inval) disturbed <= 1;
  always @(posedge clk) if (mark && inval && inval_first <= page && page <= inval_last) happened <= 1;

  // ---- the walker: in order, only what was asked for, the oldest first
  reg [3:0] under_way [0:3];
  wire [1:0] free = walks - came;
  integer i;
  always @(posedge clk) begin
    if (came) for (i = 0; i < 3; i = i + 1) under_way[i] <= under_way[i + 1];
    if (walk) under_way[free] <= {disturbed, happened, walk_page};
  end
  assign came_memory = {2'b0, under_way[0][1:0]};
  reg [3:0] since_inval = 0;
  always @(posedge clk) since_inval <= inval ? 0 : since_inval == 15 ? 15 : since_inval + 1;
  always @* begin
    assume (!came_valid || walks != 0);
    assume (!came_valid || came_frame[0] == under_way[0][2]);
    assume (!came_valid || (came_size[0] == under_way[0][3] && came_size[1]));
    assume (came_frame[2] == (came_status == 0));
    assume (inval_first <= inval_last);
    if (FAIR) assume (resp_ready && walk_ready && came_valid == (walks != 0) && (!inval_valid || since_inval > 6));
  end

  // ---- what is shown stays until it is taken
  reg p_resp = 0, p_walk = 0, p_came = 0;
  reg [15:0] p_resp_data;
  reg [1:0] p_walk_page;
  reg [10:0] p_came_data;
  wire [15:0] resp_data = {resp_status, resp_writable, resp_memory, resp_size, resp_frame};
  wire [10:0] came_data = {came_status, came_frame, came_size};
  always @(posedge clk) begin
    p_resp <= started && resp_valid && !resp_ready;
    p_resp_data <= resp_data;
    p_walk <= started && walk_valid && !walk_ready;
    p_walk_page <= walk_page;
    p_came <= started && came_valid && !came_ready;
    p_came_data <= came_data;
    if (started && p_resp) assert (resp_valid && resp_data == p_resp_data);
    if (started && p_walk) assert (walk_valid && walk_page == p_walk_page);
  end
  always @* if (p_came) assume (came_valid && came_data == p_came_data);

  // ---- the watched request: how many are answered before it
  reg watched = 0, seen = 0, is_mine = 0, after, after_any;
  reg [2:0] ahead;
  reg [1:0] mine_page;
  wire mine = resp && seen && ahead == 0;
  always @(posedge clk) begin
    if (req && watch && !watched) begin
      {watched, seen} <= 2'b11;
      ahead <= waiting - resp - gone;
      after <= happened;
      after_any <= disturbed;
      mine_page <= req_page;
      is_mine <= 1;
    end else begin
      if (mine || (is_mine && gone)) seen <= 0;
      else if (resp) ahead <= ahead - 1;
      is_mine <= 0;
    end

    if (mine) begin
      // One that is found elsewhere has no response.
      assert (!(is_mine && gone));
      // Its own page, as the walk has found it; faults are of walks of its own.
      assert (resp_memory == mine_page && (resp_status == 0) == resp_frame[2]);
      assert (resp_writable == resp_frame[1]);
      // Nothing from a walk that was asked for before the event.
      assert (!(after && mine_page == page) || resp_frame[0]);
      if (!came) assert (resp_status == 0 && resp_writable);
      // A run is one that was found after the last invalidation, and not told of otherwise.
      assert (resp_size == 0 ? !came : resp_size[1] && !(after_any && !resp_size[0]));
    end
  end

  // ---- the end within a bound
  reg [4:0] age = 0, offered = 0, inval_age = 0;
  always @(posedge clk) if (FAIR && started) begin
    age <= seen ? age + 1 : 0;
    offered <= req_valid && !req_ready ? offered + 1 : 0;
    inval_age <= inval_valid && !inval_ready ? inval_age + 1 : 0;
    assert (age <= BOUND && offered <= BOUND && inval_age <= BOUND);
  end

  // ---- what the proof would be empty without: it happens within the same steps
  always @(posedge clk) if (started) begin
    // What is held, and what is held again after the event.
    cover (mine && !came);
    cover (mine && !came && after && mine_page == page);
    cover (mine && !came && after_any && resp_size == 0);
    cover (mine && !came && after_any && resp_size != 0);
    cover (mine && came && after && mine_page == page && resp_status == 0);
    cover (mine && resp_status == 1);
    cover (inval && waiting == MOST - 1 && inval_first != inval_last);
    cover (p_resp && p_walk);
    cover (gone && waiting == MOST - 1 && walk_ready);
  end
endmodule
