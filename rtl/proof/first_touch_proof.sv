// What must hold of rtl/first_touch.vhd, for pages and frames of one bit and two walks that wait.
//
// Who asks, the walker and the allocator do whatever the ports allow.
module first_touch_proof (
    input clk,
    input req_valid, input req_page, input req_space, input req_write, input resp_ready, input walk_ready,
    input came_valid, input [2:0] came_status, input came_writable, input came_frame, input came_seen,
    input came_word, input came_ticket,
    input touch_ready, input found_valid, input [2:0] found_status, input found_writable, input found_frame,
    input gate_closed
);
  localparam DEPTH = 2;
  localparam NOT_MAPPED = 1;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire req_ready, resp_valid, resp_writable, resp_frame, walk_valid, came_ready, touch_valid, touch_page, touch_write,
       touch_seen, touch_ticket, found_ready, gate_page;
  wire [2:0] resp_status;
  wire [63:0] touch_word;

  first_touch dut (
      .Clk(clk), .Rst(rst),
      .Req_Valid(req_valid), .Req_Ready(req_ready), .Req_Page(req_page), .Req_IsSpace(req_space), .Req_Write(req_write),
      .Resp_Valid(resp_valid), .Resp_Ready(resp_ready), .Resp_Status(resp_status), .Resp_Writable(resp_writable),
      .Resp_Memory(), .Resp_Size(), .Resp_Frame(resp_frame),
      .Walk_Valid(walk_valid), .Walk_Ready(walk_ready),
      .Came_Valid(came_valid), .Came_Ready(came_ready), .Came_Status(came_status), .Came_Writable(came_writable),
      .Came_Memory(4'd0), .Came_Size(5'd0), .Came_Frame(came_frame), .Came_Seen(came_seen),
      .Came_Word({63'd0, came_word}), .Came_Ticket(came_ticket),
      .Touch_Valid(touch_valid), .Touch_Ready(touch_ready), .Touch_Page(touch_page), .Touch_Write(touch_write),
      .Touch_Seen(touch_seen), .Touch_Word(touch_word), .Touch_Ticket(touch_ticket),
      .Found_Valid(found_valid), .Found_Ready(found_ready), .Found_Status(found_status), .Found_Writable(found_writable),
      .Found_Memory(4'd0), .Found_Size(5'd0), .Found_Frame(found_frame),
      .Gate_Page(gate_page), .Gate_Closed(gate_closed));

  wire req = started && req_valid && req_ready;
  wire came = started && came_valid && came_ready;
  wire touch = started && touch_valid && touch_ready;
  wire found = started && found_valid && found_ready;
  wire resp = started && resp_valid && resp_ready;

  // ---- walks that wait, the oldest in bit 0; whether it was touched and not answered; what is shown
  reg [2:0] pages = 0, spaces = 0, writes = 0;
  reg [1:0] waiting = 0;
  reg touched = 0, shown = 0;
  reg [4:0] shown_is;
  always @(posedge clk) begin
    waiting <= waiting + req - came;
    pages <= (came ? pages >> 1 : pages) | (req && req_page) << (waiting - came);
    spaces <= (came ? spaces >> 1 : spaces) | (req && req_space) << (waiting - came);
    writes <= (came ? writes >> 1 : writes) | (req && req_write) << (waiting - came);
    touched <= started && (touch || (touched && !found));
    shown <= started && (came || (shown && !resp));
    if (came)
      shown_is <= touched ? {found_status, found_writable, found_frame} :
                  {gate_closed && !spaces[0] ? 3'd1 : came_status, came_writable, came_frame};
    if (started) begin
      assert (walk_valid == req_valid && req_ready == walk_ready);
      // What a walk found goes on, in order; what it did not is touched once and answered by the allocator, if it is of the
      // window.
      if (came) assert (!shown || resp);
      if (came) assert (touched ? found : came_status != NOT_MAPPED || spaces[0]);
      if (found) assert (came);
      if (touch_valid) begin
        assert (came_valid && came_status == NOT_MAPPED && !spaces[0] && !touched);
        assert (touch_page == pages[0] && touch_write == writes[0]);
        assert ({touch_seen, touch_word[0], touch_ticket} == {came_seen, came_word, came_ticket});
      end
      if (came_valid) assert (gate_page == pages[0]);
      assert (resp_valid == shown);
      if (shown) assert ({resp_status, resp_writable, resp_frame} == shown_is);
      // Nobody waits for nothing.
      if (came_valid && (!shown || resp)) assert (came || touch_valid || (touched && !found_valid));
    end
  end

  reg p_came = 0, p_found = 0;
  reg [7:0] p_is;
  reg [4:0] p_found_is;
  always @(posedge clk) begin
    p_came <= started && came_valid && !came_ready;
    p_is <= {came_status, came_writable, came_frame, came_seen, came_word, came_ticket};
    p_found <= started && found_valid && !found_ready;
    p_found_is <= {found_status, found_writable, found_frame};
  end
  always @* begin
    assume (!p_came || (came_valid && {came_status, came_writable, came_frame, came_seen, came_word, came_ticket} == p_is));
    assume (!p_found || (found_valid && {found_status, found_writable, found_frame} == p_found_is));
    assume (!came_valid || waiting != 0);
    assume (!found_valid || touched);
    assume (!req_valid || waiting < DEPTH);
  end
endmodule
