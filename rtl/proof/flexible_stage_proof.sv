// What must hold of rtl/flexible_stage.vhd, for two runs, pages of three bits and two requests that wait.
//
// Who asks, who is asked, and commands do whatever the ports allow. What the TLB has is proved by
// flexible_tlb_proof.sv; here: each request has one response, in order, and those that are answered by who is asked get
// that answer, of their own page; he is told in the next cycle which ones he is to forget.
module flexible_stage_proof (
    input clk,
    input req_valid, input [2:0] req_page, input resp_ready, input ask_ready,
    input came_valid, input [2:0] came_status, input came_writable, input [3:0] came_memory, input [4:0] came_size,
    input [3:0] came_frame,
    input cmd_valid, input [1:0] cmd_kind, input [2:0] cmd_first, input [3:0] cmd_bound, input cmd_writable,
    input [3:0] cmd_memory, input [3:0] cmd_frame
);
  localparam DEPTH = 2;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire req_ready, resp_valid, resp_writable, ask_valid, ask_skip, came_ready, cmd_ready;
  wire [2:0] resp_status, ask_page;
  wire [3:0] resp_memory, resp_frame;
  wire [4:0] resp_size;

  flexible_stage dut (
      .Clk(clk), .Rst(rst),
      .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Page(req_page),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Status(resp_status), .Resp_Writable(resp_writable),
      .Resp_Memory(resp_memory), .Resp_Size(resp_size), .Resp_Frame(resp_frame),
      .Ask_Valid(ask_valid), .Ask_Ready(ask_ready), .Ask_Page(ask_page), .Ask_Skip(ask_skip),
      .Came_Valid(came_valid), .Came_Ready(came_ready), .Came_Status(came_status), .Came_Writable(came_writable),
      .Came_Memory(came_memory), .Came_Size(came_size), .Came_Frame(came_frame),
      .Cmd_Valid(cmd_valid), .Cmd_Ready(cmd_ready), .Cmd_Kind(cmd_kind), .Cmd_First(cmd_first), .Cmd_Bound(cmd_bound),
      .Cmd_Writable(cmd_writable), .Cmd_Memory(cmd_memory), .Cmd_Frame(cmd_frame));

  wire req = started && req_valid && req_ready;
  wire resp = started && resp_valid && resp_ready;
  wire ask = started && ask_valid && ask_ready;
  wire came = started && came_valid && came_ready;

  // ---- pages that wait for their response, and that were asked on, the oldest first
  reg [2:0] pages [0:3], asked [0:3];
  reg [1:0] in = 0, out = 0, asks = 0, cames = 0;
  wire [1:0] waiting = in - out, missing = asks - cames;
  reg put = 0;
  // A request was taken in the cycle before.
  reg is_new = 0, has_asked = 0, was_skipped;
  reg [2:0] new_page;
  // No command was ever for this page, whichever: it is asked on.
  (* anyconst *) reg [2:0] page;
  reg touched = 0;
  always @(posedge clk) begin
    if (req) pages[in] <= req_page;
    in <= in + req;
    out <= out + resp;
    is_new <= req;
    new_page <= req_page;
    was_skipped <= ask_skip;
    if (is_new && !ask_skip) asked[asks] <= new_page;
    asks <= asks + (is_new && !ask_skip);
    cames <= cames + came;
    put <= started && (put || (cmd_valid && cmd_kind == 2));
    touched <= started && (touched || (cmd_valid && cmd_first <= page && page < cmd_bound));
    if (started) begin
      if (resp) assert (waiting != 0);
      if (came) assert (resp && asks != cames);
      // Each is asked on, and forgotten only if an entry has it.
      assert (ask == req);
      if (ask_valid) assert (ask_page == req_page);
      if (is_new && ask_skip) assert (put);
      if (is_new && new_page == page && !touched) assert (!ask_skip);
      if (!is_new && has_asked) assert (ask_skip == was_skipped);
      if (is_new) has_asked <= 1;
      if (is_new && !ask_skip) assert (missing < 2 && waiting != 0);
      if (came) begin
        assert (asked[cames] == pages[out]);
        assert ({resp_status, resp_writable, resp_memory, resp_size, resp_frame} ==
                {came_status, came_writable, came_memory, came_size, came_frame});
      end
      if (resp && !came) assert (resp_status == 0 && resp_size == 0 && put);
      if (resp && pages[out] == page && !touched) assert (came);
      // When nothing waits, everything that was asked on has come.
      if (waiting == 0) assert (asks == cames);
    end
  end

  // ---- what is shown stays
  reg p_resp = 0;
  always @(posedge clk) begin
    p_resp <= started && resp_valid && !resp_ready;
    if (started && p_resp) assert (resp_valid);
  end

  reg p_req = 0, p_cmd = 0, p_came = 0;
  reg [2:0] p_req_page;
  reg [17:0] p_command;
  always @(posedge clk) begin
    p_req <= started && req_valid && !req_ready;
    p_req_page <= req_page;
    p_cmd <= started && cmd_valid && !cmd_ready;
    p_command <= {cmd_kind, cmd_first, cmd_bound, cmd_writable, cmd_memory, cmd_frame};
    p_came <= started && came_valid && !came_ready;
  end
  always @* begin
    assume (!p_req || (req_valid && req_page == p_req_page));
    assume (!p_cmd || (cmd_valid && {cmd_kind, cmd_first, cmd_bound, cmd_writable, cmd_memory, cmd_frame} == p_command));
    assume (!p_came || came_valid);
    assume (!came_valid || asks != cames);
    assume (!req_valid || waiting < DEPTH);
    assume (cmd_kind != 3 && cmd_first < cmd_bound && cmd_bound <= 8 && cmd_bound - cmd_first <= 4);
    if (!started) assume (!cmd_valid);
  end
endmodule
