// What must hold of rtl/mmu_invalidation.vhd, for pages of one bit.
//
// Who asks, the L2 TLB and the translators do whatever the ports allow; with FAIR they keep nobody waiting, and each
// invalidation is taken within a bound.
module mmu_invalidation_proof (
    input clk,
    input [1:0] req_valid, input first0, input last0, input first1, input last1,
    input l2_ready, input [1:0] front_ready, input [1:0] drained
);
  parameter FAIR = 0;
  // Its own four steps, and those of the other's, which drains meanwhile.
  localparam BOUND = 10;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire [1:0] req_ready, req_done, front_valid;
  wire first, last, l2_valid, drop;

  mmu_invalidation dut (
      .Clk(clk), .Rst(rst), .Req_Valid(req_valid), .Req_Ready(req_ready),
      .Req_First0(first0), .Req_Last0(last0), .Req_First1(first1), .Req_Last1(last1), .Req_Done(req_done),
      .First(first), .Last(last), .L2_Valid(l2_valid), .L2_Ready(l2_ready), .Drop(drop),
      .Front_Valid(front_valid), .Front_Ready(front_ready), .Drained(drained));

  // ---- of the invalidation under way: dropped behind; which translators have taken it, which are to drain
  reg dropped = 0;
  reg [1:0] taken = 0, draining = 0;
  // Taken, not done: whose.
  reg [1:0] open = 0;
  wire [1:0] takes = front_valid & front_ready;
  wire whose = req_ready[1];
  always @(posedge clk) begin
    if (started) begin
      // The lines are dropped with the L2 TLB, once, and before any translator is told.
      assert (drop == (l2_valid && l2_ready));
      if (drop) assert (!dropped && draining == 0 && open == 0);
      if (front_valid != 0) assert (dropped && (front_valid & taken) == 0);
      // It is taken when both have it, with its pages.
      assert (req_ready != 3 && (req_ready & ~req_valid) == 0);
      assert ((req_ready != 0) == (dropped && (taken | takes) == 3));
      if (takes != 0) begin
        assert (req_valid != 0);
        assert ((req_valid[0] && first == first0 && last == last0) || (req_valid[1] && first == first1 && last == last1));
      end
      if (req_ready != 0) assert (whose ? first == first1 && last == last1 : first == first0 && last == last0);
      // It is done when both have drained, and that is told to who asked.
      assert ((req_done != 0) == (open != 0 && (draining & ~drained) == 0));
      if (req_done != 0) assert (req_done == open);
      dropped <= (dropped || drop) && req_ready == 0;
      taken <= req_ready != 0 ? 2'd0 : taken | takes;
      draining <= (draining & ~drained) | takes;
      open <= (open & ~req_done) | req_ready;
    end
  end

  reg [1:0] p_req = 0;
  reg p_first0, p_last0, p_first1, p_last1;
  always @(posedge clk) begin
    p_req <= {2{started}} & req_valid & ~req_ready;
    {p_first0, p_last0, p_first1, p_last1} <= {first0, last0, first1, last1};
  end
  always @* begin
    assume (!p_req[0] || (req_valid[0] && {first0, last0} == {p_first0, p_last0}));
    assume (!p_req[1] || (req_valid[1] && {first1, last1} == {p_first1, p_last1}));
    assume ((drained & ~draining) == 0);
    if (FAIR) assume (l2_ready && front_ready == 3 && drained == draining);
  end

  reg [3:0] age0 = 0, age1 = 0;
  always @(posedge clk) if (FAIR && started) begin
    age0 <= req_valid[0] && !req_ready[0] ? age0 + 1 : 0;
    age1 <= req_valid[1] && !req_ready[1] ? age1 + 1 : 0;
    assert (age0 <= BOUND && age1 <= BOUND);
  end
endmodule
