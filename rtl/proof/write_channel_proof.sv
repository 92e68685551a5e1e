// What must hold of rtl/write_channel.vhd, for ids of one bit, bursts of one or two beats and two of them under way.
//
// Translation, memory and writer do whatever the ports allow: a burst has so many beats as its number in the order of
// addresses says, and the memory responds when it has taken address and data, of each id in order.
module write_channel_proof (
    input clk,
    input in_valid, input in_is_fault, input in_id, input aw_ready, input fault_ready,
    input w_valid, input w_ready, input b_valid, input b_id, input b_ready, input drain
);
  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire in_ready, aw_valid, s_w_ready, m_w_valid, m_b_ready, s_b_valid, s_b_id, fault_valid, drained;
  wire [1:0] s_b_resp;
  // Beats but one of the first eight bursts, in order; that whose beats the writer sends.
  (* anyconst *) reg [7:0] twos;
  reg [2:0] sending = 0;
  reg sent = 0;
  wire w_last = sent == twos[sending];

  write_channel dut (
      .Clk(clk), .Rst(rst),
      .In_Valid(in_valid), .In_Ready(in_ready), .In_IsFault(in_is_fault), .In_Id(in_id),
      .M_Aw_Valid(aw_valid), .M_Aw_Ready(aw_ready),
      .S_W_Valid(w_valid), .S_W_Ready(s_w_ready), .S_W_Last(w_last), .M_W_Valid(m_w_valid), .M_W_Ready(w_ready),
      .M_B_Valid(b_valid), .M_B_Ready(m_b_ready), .M_B_Id(b_id), .M_B_Resp(2'b00),
      .S_B_Valid(s_b_valid), .S_B_Ready(b_ready), .S_B_Id(s_b_id), .S_B_Resp(s_b_resp),
      .Fault_Valid(fault_valid), .Fault_Ready(fault_ready), .Drain(drain), .Drained(drained));

  wire begins = started && aw_valid && aw_ready;
  wire fails = started && fault_valid && fault_ready;
  wire beat = started && w_valid && s_w_ready;
  wire ends = started && b_valid && m_b_ready;
  wire out = started && s_b_valid && b_ready;

  // ---- of each burst in the order of addresses: whether it fails, its id; so many were taken
  reg [7:0] failing = 0, ids = 0;
  reg [2:0] taken = 0;
  always @(posedge clk) begin
    if (begins || fails) begin
      failing[taken] <= fails;
      ids[taken] <= in_id;
    end
    taken <= taken + (begins || fails);
    if (beat) begin
      sent <= !w_last;
      sending <= sending + w_last;
    end
    if (started) begin
      assert (in_ready == ((aw_valid && aw_ready) || (fault_valid && fault_ready)));
      assert (!(aw_valid && fault_valid));
      // A beat goes on if its burst does, whose address was shown before, else it is dropped.
      if (beat) begin
        assert (sending < taken || (sending == taken && p_aw));
        assert ((m_w_valid && w_ready) == !(sending < taken && failing[sending]));
      end
      if (m_w_valid) assert (w_valid && (sending == taken || !failing[sending]));
    end
  end

  // ---- responses: the oldest burst of the writer's id without one, and of the memory's
  integer i;
  reg [2:0] oldest, due;
  reg is_oldest, is_due;
  reg [7:0] answered = 0, ended = 0;
  always @* begin
    {is_oldest, is_due} = 0;
    {oldest, due} = 0;
    for (i = 7; i >= 0; i = i - 1) begin
      if (i < taken && ids[i] == s_b_id && !answered[i]) {is_oldest, oldest} = {1'b1, i[2:0]};
      if (i < taken && ids[i] == b_id && !failing[i] && !ended[i]) {is_due, due} = {1'b1, i[2:0]};
    end
  end
  always @(posedge clk) begin
    if (out) answered[oldest] <= 1;
    if (ends) ended[due] <= 1;
    if (started && s_b_valid) begin
      assert (is_oldest && sending > oldest);
      assert (s_b_resp == (failing[oldest] ? 2'b10 : 2'b00));
    end
  end

  // ---- what is shown stays
  reg p_aw = 0, p_fault = 0, p_b = 0, p_b_id, p_in = 0, p_in_id, p_in_fault, p_w = 0, p_m = 0, p_m_id;
  reg [1:0] p_resp;
  always @(posedge clk) begin
    p_aw <= started && aw_valid && !aw_ready;
    p_fault <= started && fault_valid && !fault_ready;
    p_b <= started && s_b_valid && !b_ready;
    {p_b_id, p_resp} <= {s_b_id, s_b_resp};
    p_in <= started && in_valid && !in_ready;
    {p_in_id, p_in_fault} <= {in_id, in_is_fault};
    p_w <= started && w_valid && !s_w_ready;
    p_m <= started && b_valid && !m_b_ready;
    p_m_id <= b_id;
    if (started) begin
      if (p_aw) assert (aw_valid);
      if (p_fault) assert (fault_valid);
      if (p_b) assert (s_b_valid && {s_b_id, s_b_resp} == {p_b_id, p_resp});
    end
  end

  // ---- a drain is over when all that had begun has ended, and no sooner
  reg draining = 0;
  reg [7:0] elder = 0;
  always @(posedge clk) begin
    if (started && drained) assert (draining && (elder & ~failing & ~ended) == 0);
    draining <= started && (drain || (draining && !drained));
    if (drain) elder <= (8'd1 << (taken + (begins || fails))) - 1;
  end

  always @* begin
    assume (taken != 7);
    assume (!p_in || (in_valid && {in_id, in_is_fault} == {p_in_id, p_in_fault}));
    assume (!p_w || w_valid);
    assume (!p_m || (b_valid && b_id == p_m_id));
    assume (!b_valid || (is_due && sending > due));
    assume (!drain || (started && !draining));
  end
endmodule
