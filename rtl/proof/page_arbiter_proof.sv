// What must hold of rtl/page_arbiter.vhd, for pages of one bit and two requests that wait.
//
// Who asks and who answers do whatever the ports allow; with FAIR they keep nobody waiting, and each page is taken
// within a bound.
module page_arbiter_proof (
    input clk,
    input [1:0] req_valid, input req_page0, input req_page1, input [1:0] resp_ready,
    input page_ready, input known_valid
);
  parameter FAIR = 0;
  localparam DEPTH = 2;
  // The two that wait, and the other's page.
  localparam BOUND = 5;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire [1:0] req_ready, resp_valid;
  wire page_valid, page, known_ready;

  page_arbiter dut (
      .Clk(clk), .Rst(rst),
      .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Page0(req_page0), .Req_Page1(req_page1),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready),
      .Page_Valid(page_valid), .Page_Ready(page_ready), .Page(page),
      .Known_Valid(known_valid), .Known_Ready(known_ready));

  wire [1:0] req = req_valid & req_ready & {2{started}};
  wire taken = page_valid && page_ready && started;
  wire known = known_valid && known_ready && started;

  // ---- what is shown stays until it is taken
  reg [1:0] p_req = 0;
  reg p_page0, p_page1, p_shown = 0, p_page, p_known = 0;
  always @(posedge clk) begin
    p_req <= {2{started}} & req_valid & ~req_ready;
    {p_page0, p_page1} <= {req_page0, req_page1};
    p_shown <= started && page_valid && !page_ready;
    p_page <= page;
    p_known <= started && known_valid && !known_ready;
    if (started && p_shown) assert (page_valid && page == p_page);
  end

  // ---- those that wait, the oldest in bit 0: whose they are
  reg [2:0] owners = 0, waiting = 0;
  always @(posedge clk) begin
    waiting <= waiting + taken - known;
    owners <= known ? (owners >> 1) | (taken && req[1]) << (waiting - 1) : owners | (taken && req[1]) << waiting;
    if (started) begin
      // A page is one of who is told that it was taken.
      assert (taken == (req != 0) && req != 3);
      if (taken) assert (page == (req[1] ? req_page1 : req_page0));
      assert (waiting <= DEPTH);
      // A response is for the oldest, and is his when he takes it.
      assert (resp_valid != 3);
      if (resp_valid != 0) assert (waiting != 0 && known_valid && resp_valid[owners[0]]);
      assert (known == ((resp_valid & resp_ready) != 0));
    end
  end

  always @* begin
    assume (!p_req[0] || (req_valid[0] && req_page0 == p_page0));
    assume (!p_req[1] || (req_valid[1] && req_page1 == p_page1));
    assume (!p_known || known_valid);
    assume (!known_valid || waiting != 0);
    if (FAIR) assume (page_ready && resp_ready == 3 && known_valid == (waiting != 0));
  end

  // ---- within a bound
  reg [3:0] age0 = 0, age1 = 0;
  always @(posedge clk) if (FAIR && started) begin
    age0 <= req_valid[0] && !req_ready[0] ? age0 + 1 : 0;
    age1 <= req_valid[1] && !req_ready[1] ? age1 + 1 : 0;
    assert (age0 <= BOUND && age1 <= BOUND);
  end
endmodule
