// What must hold of rtl/translator.vhd, for pages of 2 bytes, a window of 4 of them and runs of 2, two
// entries, two slots and two places in the queue.
//
// Consumer, walker and invalidations do whatever the ports allow; with FAIR they keep nobody waiting, and
// everything ends within a bound. The watched request is any one, the watched page any one. The walker's
// answers say what they are: `memory` is the page that was walked for, then whether it is one of a run, then
// bit 0 of `frame`. Bit 1 of `frame` is whether the walk began after the watched event, bit 2 whether it
// is writable.
// The watched event is any invalidation of the watched page, or an answer that says that it faulted.
module translator_proof (
    input clk,
    input in_valid, input [3:0] in_addr, input in_write, input in_tag,
    input out_ready, input walk_ready,
    input resp_valid, input [2:0] resp_status, input [2:0] resp_frame, input resp_run,
    input inval_valid, input [1:0] inval_first, input [1:0] inval_last,
    input watch, input mark
);
  parameter FAIR = 0;
  localparam DEPTH = 2, SLOTS = 2;
  // Cycles in which a request is answered, if nobody keeps it waiting.
  localparam BOUND = 10;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire in_ready, out_valid, out_write, out_tag, out_inwindow, walk_valid, resp_ready, inval_ready, inval_done, twice;
  wire [3:0] out_addr, out_memory;
  wire [2:0] out_status;
  wire [1:0] walk_page;
  wire [3:0] resp_memory;
  wire resp_writable = resp_frame[2];

  translator dut (
      .Clk(clk), .Rst(rst), .Window_Base(1'b1),
      .In_Valid(in_valid), .In_Ready(in_ready), .In_Addr(in_addr), .In_Write(in_write), .In_Tag(in_tag),
      .Out_Valid(out_valid), .Out_Ready(out_ready), .Out_Addr(out_addr), .Out_Write(out_write),
      .Out_Tag(out_tag), .Out_InWindow(out_inwindow), .Out_Memory(out_memory), .Out_Status(out_status),
      .Walk_Valid(walk_valid), .Walk_Ready(walk_ready), .Walk_Page(walk_page),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Status(resp_status),
      .Resp_Writable(resp_writable), .Resp_Memory(resp_memory), .Resp_Size({4'b0, resp_run}),
      .Resp_Frame(resp_frame),
      .Inval_Valid(inval_valid), .Inval_Ready(inval_ready), .Inval_First(inval_first),
      .Inval_Last(inval_last), .Inval_Done(inval_done), .Twice(twice));

  wire accept = in_valid && in_ready && started;
  wire answer = out_valid && out_ready && started;
  wire walk = walk_valid && walk_ready && started;
  wire resp = resp_valid && resp_ready && started;
  wire inval = inval_valid && inval_ready && started;

  (* anyconst *) reg [1:0] page;

  // Requests without an answer, walks without one.
  reg [1:0] waiting = 0, walks = 0;
  always @(posedge clk) begin
    waiting <= waiting + accept - answer;
    walks <= walks + walk - resp;
    if (answer) assert (waiting != 0);
    if (started) begin
      assert (!(accept && !answer && waiting == DEPTH + 1));
      assert (walks <= SLOTS);
      // No two entries, and no two slots, are for one page.
      assert (!twice);
    end
  end

  // ---- the watched event
  wire covers = inval && inval_first <= page && page <= inval_last;
  wire faulted = answer && out_inwindow && out_status != 0 && out_addr[2:1] == page;
  reg happened = 0;
  always @(posedge clk) if (mark && (covers || faulted)) happened <= 1;

  // ---- the walker: in order, only what was asked for. Of each walk under way, the oldest first: its
  // page, and whether it began after the event.
  reg [2:0] under_way [0:3];
  wire [1:0] free = walks - resp;
  integer i;
  always @(posedge clk) begin
    if (resp) for (i = 0; i < 3; i = i + 1) under_way[i] <= under_way[i + 1];
    if (walk) under_way[free] <= {happened, walk_page};
  end
  assign resp_memory = {resp_frame[0], resp_run, under_way[0][1:0]};
  always @* begin
    assume (!resp_valid || walks != 0);
    assume (!resp_valid || resp_frame[1] == under_way[0][2]);
    assume (resp_status <= 4 && resp_status != 2);
    assume (inval_first <= inval_last);
    if (FAIR) assume (out_ready && walk_ready && resp_valid == (walks != 0));
  end

  // ---- what is shown stays until it is taken
  reg p_out = 0, p_walk = 0, p_resp = 0;
  reg [13:0] p_out_data;
  reg [1:0] p_walk_page;
  reg [6:0] p_resp_data;
  wire [13:0] out_data = {out_addr, out_write, out_tag, out_inwindow, out_memory, out_status};
  always @(posedge clk) begin
    p_out <= started && out_valid && !out_ready;
    p_out_data <= out_data;
    p_walk <= started && walk_valid && !walk_ready;
    p_walk_page <= walk_page;
    p_resp <= started && resp_valid && !resp_ready;
    p_resp_data <= {resp_status, resp_frame, resp_run};
    if (started && p_out) assert (out_valid && out_data == p_out_data);
    if (started && p_walk) assert (walk_valid && walk_page == p_walk_page);
  end
  always @* if (p_resp) assume (resp_valid && {resp_status, resp_frame, resp_run} == p_resp_data);
  reg p_inval = 0;
  reg [3:0] p_inval_pages;
  always @(posedge clk) begin
    p_inval <= started && inval_valid && !inval_ready;
    p_inval_pages <= {inval_first, inval_last};
  end
  always @* if (p_inval) assume (inval_valid && {inval_first, inval_last} == p_inval_pages);

  // ---- the watched request: how many are answered before it
  reg watched = 0, seen = 0, after, is_write, tag;
  reg [1:0] ahead;
  reg [3:0] addr;
  wire mine = answer && seen && ahead == 0;
  // The page that was walked for, another one perhaps, whose run has this one: its frame lies as it does.
  wire [1:0] walked_page = out_memory[1:0];
  wire is_own = walked_page == addr[2:1];
  wire is_of_run = out_memory[2] && walked_page[1] == addr[2] && out_memory[3] == walked_page[0];
  always @(posedge clk) begin
    if (accept && watch && !watched) begin
      {watched, seen} <= 2'b11;
      ahead <= waiting - answer;
      after <= happened;
      addr <= in_addr;
      is_write <= in_write;
      tag <= in_tag;
    end else if (mine) seen <= 0;
    else if (answer) ahead <= ahead - 1;

    if (mine) begin
      // In order, once, with what it carried.
      assert (out_tag == tag && out_write == is_write && out_inwindow == addr[3]);
      if (!addr[3] || out_status != 0) assert (out_addr == addr && out_memory == 0);
      if (!addr[3]) assert (out_status == 0);
      if (addr[3] && out_status == 0) begin
        // The translation of its page, and its place within it.
        assert (is_own || is_of_run);
        assert (out_addr[1] == (is_own ? out_memory[3] : addr[1]) && out_addr[0] == addr[0]);
        assert (!is_write || out_addr[3]);
        // Nothing from a walk that began before the event.
        assert (!(after && addr[2:1] == page) || out_addr[2]);
      end
      if (out_status == 2) assert (is_write);
    end
  end

  // ---- an invalidation is done when all that was accepted before it has been answered
  reg draining = 0;
  reg [1:0] left;
  always @(posedge clk) begin
    if (inval) begin
      draining <= 1;
      left <= waiting + accept - answer;
    end else begin
      if (inval_done) draining <= 0;
      if (answer && left != 0) left <= left - 1;
    end
    if (started && inval_done) assert (draining && left == 0);
    if (started && inval) assert (!draining || inval_done);
  end

  // ---- the end within a bound
  reg [3:0] age = 0, offered = 0, drain_age = 0;
  always @(posedge clk) if (FAIR && started) begin
    age <= seen ? age + 1 : 0;
    offered <= in_valid && !in_ready ? offered + 1 : 0;
    drain_age <= draining && !inval ? drain_age + 1 : 0;
    assert (age <= BOUND && offered <= BOUND && drain_age <= BOUND);
  end

  // ---- what the proof would be empty without: it happens within the same steps
  reg drained_late = 0, is_held = 0;
  always @(posedge clk) if (started) begin
    // Nobody walks when the watched request is accepted, nor later.
    is_held <= (is_held || accept && watch && !watched && walks == 0) && !walk_valid;
    drained_late <= draining && !inval && (drained_late || answer && left != 0);
    cover (mine && after && addr[3:1] == {1'b1, page} && out_status == 0);
    cover (mine && after && addr[3:1] == {1'b1, page} && out_status == 3);
    cover (mine && out_status == 0 && is_of_run && !is_own);
    cover (mine && out_status == 2);
    cover (mine && out_inwindow && out_status == 0 && is_held);
    cover (mine && !addr[3]);
    cover (faulted && mark && waiting == 3);
    cover (inval_done && drained_late);
    cover (walks == SLOTS - 1 && p_out && p_walk);
    cover (walks == SLOTS);
    cover (p_resp && resp);
  end
endmodule
