// What must hold of rtl/walker.vhd, for two words in the root and in a table, and two walks.
//
// The memory answers in order for each id, at any time, with any word, and takes reads when it likes;
// with FAIR it keeps nobody waiting, and a walk ends within a bound.
// The watched walk is any one: its reads, its words and its response are compared with what
// docs/card-interface.md says of them.
module walker_proof (
    input clk,
    input watch, input req_valid, input [1:0] req_page, input resp_ready,
    input ar_ready, input r_valid, input r_id, input [63:0] r_data, input [1:0] r_resp
);
  parameter FAIR = 0;
  localparam WALKS = 2;
  localparam BOUND = 12;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  (* anyconst *) reg [1:0] root_addr;

  wire req_ready, resp_valid, resp_writable, ar_valid, ar_id, r_ready;
  wire [2:0] resp_status, ar_size;
  wire [3:0] resp_memory;
  wire [4:0] resp_size, resp_frame;
  wire [5:0] ar_addr;
  wire [7:0] ar_len;
  wire [1:0] ar_burst;

  walker dut (
      .Clk(clk), .Rst(rst), .Root_Addr(root_addr),
      .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Page(req_page),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Status(resp_status),
      .Resp_Writable(resp_writable), .Resp_Memory(resp_memory), .Resp_Size(resp_size),
      .Resp_Frame(resp_frame),
      .Axi_ArValid(ar_valid), .Axi_ArReady(ar_ready), .Axi_ArId(ar_id), .Axi_ArAddr(ar_addr),
      .Axi_ArLen(ar_len), .Axi_ArSize(ar_size), .Axi_ArBurst(ar_burst),
      .Axi_RValid(r_valid), .Axi_RReady(r_ready), .Axi_RId(r_id), .Axi_RData(r_data),
      .Axi_RResp(r_resp));

  wire req = req_valid && req_ready && started;
  wire resp = resp_valid && resp_ready && started;
  wire ar_root = ar_valid && ar_ready && !ar_id && started;
  wire ar_leaf = ar_valid && ar_ready && ar_id && started;
  wire r_root = r_valid && !r_id && started;
  wire r_leaf = r_valid && r_id && started;

  // ---- words, by their bits
  wire ok = r_resp == 0;
  wire [31:0] number = r_data[63:32];
  wire leads = ok && r_data[0] && r_data[16] && number < 4;
  wire run_good = r_data[2] && number < 32 && !number[0] && r_data[9:5] == 1;
  wire page_good = !r_data[16] && r_data[2] && number < 32 && r_data[9:5] <= 1;
  wire [2:0] root_status = !ok ? 3 : !r_data[0] ? 1 : leads || !r_data[16] && run_good ? 0 : 4;
  wire [2:0] leaf_status = !ok ? 3 : !r_data[0] ? 1 : page_good ? 0 : 4;

  // Walks under way; those that have no word of the root yet, of which some were asked for; those that
  // need a word of a table, and have none yet.
  reg [1:0] under_way = 0, rootless = 0, root_reads = 0, leafless = 0, leaf_reads = 0;
  always @(posedge clk) begin
    under_way <= under_way + req - resp;
    rootless <= rootless + req - r_root;
    root_reads <= root_reads + ar_root - r_root;
    leafless <= leafless + (r_root && leads) - r_leaf;
    leaf_reads <= leaf_reads + ar_leaf - r_leaf;
  end

  // ---- the memory
  always @* begin
    assume (!r_valid || (r_id ? leaf_reads != 0 : root_reads != 0));
    if (FAIR) assume (ar_ready && resp_ready && r_valid == (root_reads != 0 || leaf_reads != 0));
  end

  // ---- whatever the memory answers is taken; credits are kept; nothing is read without need
  always @(posedge clk) if (started) begin
    assert (r_ready);
    assert (under_way <= WALKS);
    if (req) assert (under_way < WALKS);
    // A credit that is free can be had, unless reads stand in the way.
    if (under_way < WALKS && !ar_valid && leafless == 0) assert (req_ready);
    if (resp) assert (under_way != 0);
    if (ar_root) assert (root_reads < rootless);
    if (ar_leaf) assert (leaf_reads < leafless);
    if (ar_valid) assert (ar_len == 0 && ar_size == 3 && ar_burst == 1);
  end

  // ---- what is shown stays until it is taken
  reg p_ar = 0, p_resp = 0;
  reg [6:0] p_ar_data;
  reg [17:0] p_resp_data;
  wire [17:0] resp_data = {resp_status, resp_writable, resp_memory, resp_size, resp_frame};
  always @(posedge clk) begin
    p_ar <= started && ar_valid && !ar_ready;
    p_ar_data <= {ar_id, ar_addr};
    p_resp <= started && resp_valid && !resp_ready;
    p_resp_data <= resp_data;
    if (started && p_ar) assert (ar_valid && {ar_id, ar_addr} == p_ar_data);
    if (started && p_resp) assert (resp_valid && resp_data == p_resp_data);
  end

  // ---- the watched walk: how many come before it where it is next
  reg watched = 0, seen = 0, root_asked, root_seen, needs_leaf, leaf_asked, leaf_seen;
  reg [1:0] ahead, roots_ahead, root_reads_ahead, leaves_ahead, leaf_reads_ahead;
  reg [1:0] page, table_number;
  reg [2:0] status;
  reg writable;
  reg [3:0] memory;
  reg [4:0] size, frame;
  wire my_ar_root = seen && ar_root && !root_asked && root_reads_ahead == 0;
  wire my_r_root = seen && r_root && !root_seen && roots_ahead == 0;
  wire my_ar_leaf = seen && ar_leaf && needs_leaf && !leaf_asked && leaf_reads_ahead == 0;
  wire my_r_leaf = seen && r_leaf && needs_leaf && !leaf_seen && leaves_ahead == 0;
  wire mine = seen && resp && ahead == 0;
  always @(posedge clk) begin
    if (ar_root) root_reads_ahead <= root_reads_ahead - 1;
    if (r_root) roots_ahead <= roots_ahead - 1;
    if (ar_leaf) leaf_reads_ahead <= leaf_reads_ahead - 1;
    if (r_leaf) leaves_ahead <= leaves_ahead - 1;
    if (resp) ahead <= ahead - 1;
    if (my_ar_root) begin
      root_asked <= 1;
      assert (ar_addr == {root_addr, page[1], 3'b000});
    end
    if (my_r_root) begin
      assert (root_asked);
      root_seen <= 1;
      needs_leaf <= leads;
      leaves_ahead <= leafless - r_leaf;
      leaf_reads_ahead <= leafless - leaf_reads - ar_leaf;
      table_number <= number[1:0];
      status <= root_status;
      writable <= r_data[1];
      memory <= r_data[15:12];
      size <= r_data[9:5];
      frame <= {number[4:1], page[0]};
    end
    if (my_ar_leaf) begin
      leaf_asked <= 1;
      assert (ar_addr == {table_number, page[0], 3'b000});
    end
    if (my_r_leaf) begin
      leaf_seen <= 1;
      status <= leaf_status;
      writable <= r_data[1];
      memory <= r_data[15:12];
      size <= r_data[9:5];
      frame <= number[4:0];
    end
    if (mine) begin
      assert (root_seen && (!needs_leaf || leaf_seen));
      assert (resp_status == status);
      if (status == 0) assert (resp_writable == writable && resp_memory == memory
                               && resp_size == size && resp_frame == frame);
      seen <= 0;
    end
    if (req && watch && !watched) begin
      {watched, seen} <= 2'b11;
      page <= req_page;
      ahead <= under_way - resp;
      roots_ahead <= rootless - r_root;
      root_reads_ahead <= rootless - root_reads - ar_root;
      {root_asked, root_seen, needs_leaf, leaf_asked, leaf_seen} <= 0;
    end
  end

  // ---- a request is taken, and has its response, within a bound
  reg [3:0] age = 0, offered = 0;
  always @(posedge clk) if (FAIR && started) begin
    age <= seen ? age + 1 : 0;
    offered <= req_valid && !req_ready ? offered + 1 : 0;
    assert (age <= BOUND && offered <= BOUND);
  end
endmodule
