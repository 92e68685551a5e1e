// What must hold of rtl/space_directory.vhd, for tables of two words, numbers of pages of six bits, eight pages of the
// space, and two tables held.
//
// Who looks, drops and answers reads does so when he likes. With FAIR the memory keeps nobody waiting, nothing is dropped,
// and a page is known within a bound. A word says how one came to it: the digits of the page's number down to it, how
// many drops there were when it was read, and whether the words above it were read after the same ones. Which words are
// not valid, runs, not accessed, not dirty, or not to be read is any constant, another after each drop.
module space_directory_proof (
    input clk,
    input look_valid, input [2:0] look_page, input take, input read_ready, input come_valid, input drop
);
  parameter FAIR = 0;
  localparam BOUND = 15;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  (* anyconst *) reg root_valid;
  (* anyconst *) reg [2:0] levels, above;
  (* anyconst *) reg [63:0] invalids, runs_are, untoucheds, cleans, fails_are;

  // Of a table: the digits down to it, the drops when its word was read, whether all was of one drop, the root's.
  localparam [8:0] TOP = 9'b00000_00_1_1;
  wire [63:0] root = {23'd0, TOP, 28'd0, levels, root_valid};

  wire known, read_valid, is_table, writable;
  wire [2:0] status;
  wire [3:0] memory;
  wire [4:0] size;
  wire [31:0] number;
  wire [12:0] read_addr;

  // ---- the read under way: of which table, and drops when it was asked for
  reg reading = 0;
  reg [8:0] of_table;
  reg [1:0] asked_at, drops = 0;
  function [63:0] word(input digit, input [8:0] of_table, input [1:0] at, input [63:0] invalids, runs, untoucheds, cleans);
    reg [4:0] path;
    reg ok;
    begin
      path = {of_table[7:4], digit};
      ok = of_table[1] && (of_table[0] || of_table[3:2] == at);
      word = {23'd0, path, at, ok, 1'b0, 15'd0, !runs[{at[0], path}], 6'd0, 5'd1, !cleans[{at[0], path}],
              !untoucheds[{at[0], path}], 1'b1, 1'b1, !invalids[{at[0], path}]};
    end
  endfunction
  wire [127:0] data = {word(1, of_table, asked_at, invalids, runs_are, untoucheds, cleans),
                       word(0, of_table, asked_at, invalids, runs_are, untoucheds, cleans)};
  wire failed = fails_are[{asked_at[0], of_table[7:4], 1'b0}];

  wire done = look_valid && known && take;
  space_directory dut (
      .Clk(clk), .Rst(rst), .Root(root), .First({above, 3'd0}),
      .Look_Valid(look_valid), .Look_Page(look_page), .Look_Done(done),
      .Look_Known(known), .Look_Entry_Status(status), .Look_Entry_IsTable(is_table), .Look_Entry_Writable(writable),
      .Look_Entry_Memory(memory), .Look_Entry_Size(size), .Look_Entry_Number(number),
      .Read_Valid(read_valid), .Read_Ready(read_ready), .Read_Addr(read_addr),
      .Come_Valid(come_valid), .Come_Failed(failed), .Come_Data(data), .Drop(drop));

  // ---- what the tables say now, from the top down
  wire [5:0] page = {above, look_page};
  reg [2:0] is_status;
  reg is_run;
  reg [5:0] path;
  integer l;
  always @* begin
    is_run = 0;
    path = 0;
    is_status = !root_valid || levels == 0 ? 1 : levels == 7 ? 4 : (page >> levels) != 0 ? 1 : 0;
    for (l = 5; l > 0; l = l - 1)
      if (l < levels && is_status == 0 && !is_run) begin
        path = page >> l;
        if (fails_are[{drops[0], path[4:1], 1'b0}]) is_status = 3;
        else if (invalids[{drops[0], path[4:0]}]) is_status = 1;
        else if (runs_are[{drops[0], path[4:0]}]) begin
          is_run = 1;
          is_status = l != 1 ? 4 : untoucheds[{drops[0], path[4:0]}] ? 1 : 0;
        end
      end
  end

  reg p_valid = 0, p_come = 0, p_read = 0;
  reg [2:0] p_page;
  reg [12:0] p_addr;
  always @(posedge clk) if (started) begin
    // What is known is what the tables said when they were read after the last drop, whoever looks.
    if (known) begin
      assert (status == is_status);
      if (status == 0) begin
        assert (is_table == !is_run);
        if (levels == 1) assert (number == TOP);
        else assert (number == {path[4:0], drops, 1'b1, 1'b0});
        if (is_run) assert (writable == !cleans[{drops[0], path[4:0]}] && memory == 0 && size == 1);
      end
    end
    // One read at a time, of a table that was led to; what is shown stays.
    if (read_valid) assert (look_valid && !known && !reading && read_addr[3:0] == 0);
    if (p_read) assert (read_valid && read_addr == p_addr);
  end
  always @(posedge clk) begin
    p_valid <= started && look_valid && !done;
    p_page <= look_page;
    p_read <= started && read_valid && !read_ready;
    p_addr <= read_addr;
    drops <= drops + (started && drop);
    if (come_valid) reading <= 0;
    if (started && read_valid && read_ready) begin
      reading <= 1;
      of_table <= read_addr[12:4];
      asked_at <= drops;
    end
  end
  always @* begin
    // Who waits for a page goes on to.
    assume (!p_valid || (look_valid && look_page == p_page));
    assume (!come_valid || reading);
    assume (drops != 3 || !drop);
    if (FAIR) assume (read_ready && come_valid == reading && !drop);
  end

  reg [4:0] age = 0;
  always @(posedge clk) begin
    age <= started && look_valid && !known ? age + 1 : 0;
    if (FAIR) assert (age <= BOUND);
  end

  // ---- what the proof would be empty without: it happens within the same steps
  reg [1:0] held = 0;
  always @(posedge clk) if (started) begin
    if (done && status == 0) held <= held + 1;
    cover (done && levels == 4 && status == 0 && is_table);
    cover (done && is_run && status == 0 && drops == 1);
    cover (done && status == 3);
    cover (held == 3 && p_valid);
    cover (drop && reading && levels == 3);
    cover (known && !look_valid && status == 0);
  end
endmodule
