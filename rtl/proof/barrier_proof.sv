// What must hold of rtl/barrier.vhd, for four beats, two writes and two reads under way.
//
// The memory takes addresses and data when it likes, answers what it has taken, and reads in order.
module barrier_proof (
    input clk,
    input write, input [7:0] write_addr, input [63:0] word, input many, input run, input each, input [7:0] mask,
    input read, input [7:0] read_addr,
    input aw_ready, input w_ready, input b, input [1:0] b_resp,
    input ar_ready, input r, input [511:0] r_data, input [3:0] any
);
  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire write_ready, read_ready, aw, w, ar, quiet, failed, b_ready;
  wire [7:0] aw_addr, ar_addr;
  wire [511:0] w_data;
  wire [63:0] w_strb, read_word;

  barrier dut (
      .Clk(clk), .Rst(rst), .Write_Valid(write), .Write_Ready(write_ready), .Write_Addr(write_addr), .Write_Word(word),
      .Write_Many(many), .Write_Run(run), .Write_Each(each), .Write_Lanes(0), .Write_Mask(mask),
      .Read_Valid(read), .Read_Ready(read_ready), .Read_Addr(read_addr), .Read_Word(read_word),
      .Quiet(quiet), .Failed(failed),
      .Axi_AwValid(aw), .Axi_AwReady(aw_ready), .Axi_AwAddr(aw_addr),
      .Axi_WValid(w), .Axi_WReady(w_ready), .Axi_WData(w_data), .Axi_WStrb(w_strb),
      .Axi_BValid(b), .Axi_BReady(b_ready), .Axi_BResp(b_resp),
      .Axi_ArValid(ar), .Axi_ArReady(ar_ready), .Axi_ArAddr(ar_addr),
      .Axi_RValid(r), .Axi_RData(r_data));

  // ---- how many were taken, shown to the memory and taken there, and have ended
  reg [3:0] writes = 0, addresses = 0, data = 0, responses = 0, reads = 0, asked = 0, came = 0;
  reg [7:0] last_write, last_read, last_strb;
  reg has_failed = 0;

  // ---- any one of the reads, and the word that it is of
  reg [3:0] watched;
  reg [2:0] which;
  always @(posedge clk) watched <= started ? watched : any;

  always @* begin
    if (!started) assume (!write && !read && !b && !r);
    if (responses == addresses || responses == data) assume (!b);
    if (came == asked) assume (!r);
  end

  integer i;
  always @(posedge clk) if (started) begin
    if (write && write_ready) begin
      writes <= writes + 1;
      last_write <= {write_addr[7:6], 6'b0};
      last_strb <= many ? mask : 8'b1 << write_addr[5:3];
    end
    addresses <= addresses + (aw && aw_ready);
    data <= data + (w && w_ready);
    responses <= responses + b;
    if (b && b_resp[1]) has_failed <= 1;
    if (read && read_ready) begin
      reads <= reads + 1;
      last_read <= {read_addr[7:6], 6'b0};
      if (reads == watched) which <= read_addr[5:3];
    end
    asked <= asked + (ar && ar_ready);
    came <= came + r;
    // ---- each is shown once, as it was said, until it is taken; no more than there is room for
    assert (aw == (addresses != writes) && w == (data != writes) && ar == (asked != reads));
    assert (writes - addresses <= 1 && writes - data <= 1 && reads - asked <= 1);
    assert (writes - responses <= 2 && reads - came <= 2 && b_ready);
    if (aw) assert (aw_addr == last_write);
    if (ar) assert (ar_addr == last_read);
    if (w) for (i = 0; i < 8; i = i + 1) assert (w_strb[8 * i +: 8] == {8{last_strb[i]}});
    // ---- a word is that of its read
    if (r && came == watched) assert (read_word == r_data[64 * which +: 64]);
    // ---- all is done, or not
    assert (quiet == (writes == responses && reads == came));
    assert (failed == has_failed);
    cover (writes == 3 && responses == 3 && reads == 3 && came == 3 && quiet);
  end
endmodule
