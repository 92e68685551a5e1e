// What must hold of rtl/walker.vhd, for two words in the root, four in a table, two in a line, two lines
// and two walks.
//
// Whoever writes the root, asks, and drops the lines does so when he likes, and takes responses when he
// likes; the memory answers in order, at any time. With FAIR it keeps nobody waiting, and a walk ends within
// a bound. Word i of the root is not mapped, a run, or leads to table i or i + 2. The memory's words say
// what they are: the frame has the word's number, its line, its table, and whether the line was read
// after the watched event, a drop; which words are not valid, and which lines fail, is any constant.
module walker_proof (
    input clk,
    input root_valid, input root_index, input [1:0] root_kind,
    input watch, input req_valid, input [2:0] req_page, input resp_ready,
    input drop, input mark,
    input ar_ready, input r_valid
);
  parameter FAIR = 0;
  localparam WALKS = 2, LINES = 2;
  // Walks that are read for, two that wait, one that is looked up, one whose response is shown.
  localparam UNDER_WAY = WALKS + 4;
  localparam BOUND = 14;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  // What is not valid, of each word, and what fails, of each line.
  (* anyconst *) reg [15:0] invalid;
  (* anyconst *) reg [7:0] fails;

  wire root_ready, req_ready, resp_valid, resp_writable, ar_valid, r_ready;
  wire event_walk, event_found, event_ahead, event_resp;
  wire [2:0] resp_status, ar_size;
  wire [3:0] resp_memory;
  wire [4:0] resp_size;
  wire [5:0] resp_frame;
  wire [6:0] ar_addr;
  wire [7:0] ar_len;
  wire [1:0] ar_burst;

  // ---- the root: 0 not mapped, 1 the run of frames 60 and following, 2 and 3 tables
  wire [31:0] root_number = root_kind[1] ? {30'b0, root_kind[0], root_index} : 60;
  wire [63:0] root_word = {root_number, 15'b0, root_kind[1], 6'b0, 5'd2, 2'b0, 1'b1, 1'b0, root_kind != 0};
  // What was written; what a walk sees that is looked up in this cycle.
  reg [1:0] written [0:1], root [0:1];

  // ---- reads under way, the oldest first: table and line, and whether it was read after the event
  reg happened = 0;
  reg [3:0] reading [0:2];
  reg [1:0] reads = 0;
  wire [2:0] line = reading[0][2:0];
  wire fresh = reading[0][3];
  function [63:0] word(input w, input [2:0] line, input fresh, input [15:0] invalid);
    word = {27'b0, fresh, line, w, 29'b0, 1'b1, 1'b0, !invalid[{line, w}]};
  endfunction
  wire [127:0] r_data = {word(1, line, fresh, invalid), word(0, line, fresh, invalid)};
  wire [1:0] r_resp = fails[line] ? 2 : 0;

  walker dut (
      .Clk(clk), .Rst(rst),
      .Root_Valid(root_valid), .Root_Ready(root_ready), .Root_Index(root_index), .Root_Word(root_word),
      .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Page(req_page), .Req_IsSpace(1'b0),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Status(resp_status),
      .Resp_Writable(resp_writable), .Resp_Memory(resp_memory), .Resp_Size(resp_size),
      .Resp_Frame(resp_frame), .Drop(drop),
      .Axi_ArValid(ar_valid), .Axi_ArReady(ar_ready), .Axi_ArAddr(ar_addr),
      .Axi_ArLen(ar_len), .Axi_ArSize(ar_size), .Axi_ArBurst(ar_burst),
      .Axi_RValid(r_valid), .Axi_RReady(r_ready), .Axi_RData(r_data), .Axi_RResp(r_resp),
      .Event_Walk(event_walk), .Event_Found(event_found), .Event_Ahead(event_ahead),
      .Event_Resp(event_resp));

  wire root_write = root_valid && root_ready && started;
  wire req = req_valid && req_ready && started;
  wire resp = resp_valid && resp_ready && started;
  wire ar = ar_valid && ar_ready && started;
  wire r = r_valid && started;
  wire dropped = drop && started;

  always @(posedge clk) begin
    root[0] <= written[0];
    root[1] <= written[1];
    if (root_write) written[root_index] <= root_kind;
    if (!started) begin
      written[0] <= 0; written[1] <= 0;
      root[0] <= 0; root[1] <= 0;
    end
    if (dropped && mark) happened <= 1;
  end

  wire [1:0] free = reads - r;
  always @(posedge clk) begin
    reads <= reads + ar - r;
    if (r) begin reading[0] <= reading[1]; reading[1] <= reading[2]; end
    if (ar) reading[free] <= {happened, ar_addr[6:4]};
  end
  always @* begin
    assume (!r_valid || reads != 0);
    // Who changes the root does so before he has the lines dropped; then nothing changes any more.
    assume (!(root_write && (happened || dropped && mark)));
    if (FAIR) assume (ar_ready && resp_ready && r_valid == (reads != 0));
  end

  // ---- whatever the memory answers is taken; there are no more walks and reads than places
  reg [2:0] under_way = 0, unseen = 0;
  always @(posedge clk) if (started) begin
    under_way <= under_way + req - resp;
    unseen <= unseen + req - event_walk;
    assert (r_ready);
    assert (under_way <= UNDER_WAY && reads <= LINES);
    if (event_walk) assert (unseen != 0);
    if (resp) assert (under_way != 0);
    if (ar_valid) assert (ar_len == 0 && ar_size == 4 && ar_burst == 1 && ar_addr[3:0] == 0);
  end

  // ---- what is shown stays until it is taken
  reg p_ar = 0, p_resp = 0;
  reg [6:0] p_ar_data;
  reg [18:0] p_resp_data;
  wire [18:0] resp_data = {resp_status, resp_writable, resp_memory, resp_size, resp_frame};
  always @(posedge clk) begin
    p_ar <= started && ar_valid && !ar_ready;
    p_ar_data <= ar_addr;
    p_resp <= started && resp_valid && !resp_ready;
    p_resp_data <= resp_data;
    if (started && p_ar) assert (ar_valid && ar_addr == p_ar_data);
    if (started && p_resp) assert (resp_valid && resp_data == p_resp_data);
  end

  // ---- a line that is on its way is not read again, unless it was dropped: of any word of the root any line
  (* anyconst *) reg [1:0] one;
  reg one_known = 0, p_dropped = 0;
  wire one_asked = ar_valid && !p_ar && ar_addr[5:4] == one && started;
  wire one_came = r && reading[0][1:0] == one;
  always @(posedge clk) begin
    p_dropped <= dropped;
    if (one_asked) assert (!one_known);
    one_known <= (one_known || one_asked && !p_dropped) && !dropped && !one_came;
  end

  // ---- the watched walk: how many come before it where it is next
  reg watched = 0, seen = 0, looked_up, after;
  reg [2:0] ahead, unseen_ahead, page;
  reg [1:0] kind;
  wire my_look = seen && event_walk && !looked_up && unseen_ahead == 0;
  wire mine = seen && resp && ahead == 0;
  // Its line in the table that it was led to, and in the other one.
  wire [2:0] mine_line = {kind[0], page[2:1]}, other_line = {!kind[0], page[2:1]};
  wire [2:0] mine_status = fails[mine_line] ? 3 : invalid[{mine_line, page[0]}] ? 1 : 0;
  wire [2:0] other_status = fails[other_line] ? 3 : invalid[{other_line, page[0]}] ? 1 : 0;
  always @(posedge clk) begin
    if (event_walk) unseen_ahead <= unseen_ahead - 1;
    if (resp) ahead <= ahead - 1;
    if (my_look) begin
      looked_up <= 1;
      kind <= root[page[2]];
      if (!root[page[2]][1]) assert (event_found);
    end
    if (mine) begin
      assert (looked_up);
      if (kind == 0) assert (resp_status == 1);
      if (kind == 1) assert (resp_status == 0 && resp_frame == {4'd15, page[1:0]} && resp_size == 2);
      if (kind[1]) begin
        // A line of before may be of the table of before; after the event there is none.
        assert (resp_status == mine_status || !after && resp_status == other_status);
        if (resp_status == 0) begin
          assert ({resp_frame[5], resp_frame[2:0]} == {1'b0, page});
          assert (resp_frame[3] == kind[0] || !after);
          assert (!invalid[resp_frame[3:0]] && !fails[resp_frame[3:1]]);
          assert (resp_frame[4] || !after);
        end
      end
      seen <= 0;
    end
    if (req && watch && !watched) begin
      {watched, seen} <= 2'b11;
      page <= req_page;
      after <= happened;
      ahead <= under_way - resp;
      unseen_ahead <= unseen - event_walk;
      looked_up <= 0;
    end
  end

  // ---- a request is taken, and has its response, within a bound
  reg [4:0] age = 0, offered = 0;
  always @(posedge clk) if (FAIR && started) begin
    age <= seen ? age + 1 : 0;
    offered <= req_valid && !req_ready ? offered + 1 : 0;
    assert (age <= BOUND && offered <= BOUND);
  end

  // ---- what the proof would be empty without: it happens within the same steps
  reg found = 0;
  always @(posedge clk) if (started) begin
    if (my_look) found <= event_found;
    cover (mine && kind == 0);
    cover (mine && kind == 1);
    cover (mine && kind[1] && after && resp_status == 0);
    cover (mine && kind[1] && found && resp_status == 0);
    // A line of before, whose table the root names no more.
    cover (mine && kind[1] && resp_status == 0 && resp_frame[3] != kind[0]);
    cover (mine && resp_status == 3);
    cover (event_ahead);
    cover (dropped && mark && reads == LINES);
    cover (under_way == UNDER_WAY - 1);
    cover (p_ar && p_resp);
  end
endmodule
