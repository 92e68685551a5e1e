// What must hold of rtl/write_channel.vhd, for ids of one bit, bursts of one or two beats and two of them under way.
//
// Translation, memory and writer do whatever the ports allow: a burst has so many beats as its number in the order of
// addresses says, and the memory responds when it has taken address and data, of each id in order. With FAIR it takes
// and responds at once, what a drain waits for first, and the writer sends and takes at once: a drain ends within a
// bound.
module write_channel_proof (
    input clk,
    input in_valid, input in_is_fault, input in_id, input aw_ready, input fault_ready,
    input w_valid, input w_ready, input b_valid, input b_id, input b_ready, input drain
);
  parameter FAIR = 0;
  localparam BURSTS = 2;
  // The beats of two bursts, an error between their responses, and a step for each id and for the begin and the end.
  localparam BOUND = 9;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire in_ready, aw_valid, s_w_ready, m_w_valid, m_b_ready, s_b_valid, s_b_id, fault_valid, drained;
  wire [1:0] s_b_resp;
  // Beats but one of eight bursts, in order, and again; that whose beats the writer sends.
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
  wire last = beat && w_last;
  wire ends = started && b_valid && m_b_ready;

  // ---- bursts whose data are to come, the oldest in bit 0: which are faults, and their ids; an address has its place
  // when it is shown
  reg p_aw = 0;
  wire placed = started && ((aw_valid && !p_aw) || fails);
  reg [3:0] faults = 0, ids = 0;
  reg [2:0] places = 0;
  wire [2:0] behind = places - last;
  always @(posedge clk) begin
    places <= behind + placed;
    faults <= (last ? faults >> 1 : faults) | (placed && fails) << behind;
    ids <= (last ? ids >> 1 : ids) | (placed && in_id) << behind;
    if (beat) begin
      sent <= !w_last;
      sending <= sending + w_last;
    end
    if (started) begin
      // It goes on or fails, not both, and is taken when it does.
      assert (in_ready == ((aw_valid && aw_ready) || (fault_valid && fault_ready)));
      assert (!(aw_valid && fault_valid));
      assert (places <= BURSTS);
      // A beat goes on if its burst does, whose address was shown before, else it is dropped.
      if (beat) begin
        assert (places != 0);
        assert ((m_w_valid && w_ready) == !faults[0]);
      end
      if (m_w_valid) assert (w_valid && places != 0 && !faults[0]);
    end
  end

  // ---- of each id: bursts that the memory has and has not ended, and those whose data it has; one of these may be of an
  // address that it has not taken yet
  reg [1:0] waiting [0:1];
  reg [1:0] whole [0:1];
  integer i;
  initial for (i = 0; i < 2; i = i + 1) begin
    waiting[i] = 0;
    whole[i] = 0;
  end
  always @(posedge clk) begin
    for (i = 0; i < 2; i = i + 1) begin
      waiting[i] <= waiting[i] + (begins && in_id == i) - (ends && b_id == i);
      whole[i] <= whole[i] + (last && !faults[0] && ids[0] == i) - (ends && b_id == i);
    end
    if (started) assert (waiting[0] + waiting[1] <= BURSTS);
  end
  wire [1:0] answerable = {waiting[1] != 0 && whole[1] != 0, waiting[0] != 0 && whole[0] != 0};

  // ---- the bursts of one id, whichever, without a response, the oldest in bit 0: which are faults; those whose data were
  // taken, which are the oldest
  (* anyconst *) reg id;
  reg [3:0] mine_faults = 0;
  reg [2:0] open = 0, sent_mine = 0;
  wire mine = placed && in_id == id;
  wire out = started && s_b_valid && b_ready && s_b_id == id;
  always @(posedge clk) begin
    open <= open + mine - out;
    sent_mine <= sent_mine + (last && ids[0] == id) - out;
    mine_faults <= (out ? mine_faults >> 1 : mine_faults) | (mine && fails) << (open - out);
    if (started) begin
      assert (open <= 3);
      // Each has its response, in order, when its data were taken; that of a fault is an error.
      if (s_b_valid && s_b_id == id) begin
        assert (sent_mine != 0);
        assert (s_b_resp == (mine_faults[0] ? 2'b10 : 2'b00));
      end
    end
  end

  // ---- what is shown stays
  reg p_fault = 0, p_b = 0, p_b_id, p_in = 0, p_in_id, p_in_fault, p_w = 0, p_m = 0, p_m_id;
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
  reg [1:0] elder [0:1];
  always @(posedge clk) begin
    if (started && drained) begin
      assert (draining);
      assert (elder[0] == 0 && elder[1] == 0);
    end
    draining <= started && (drain || (draining && !drained));
    for (i = 0; i < 2; i = i + 1)
      if (drain) elder[i] <= waiting[i] + (begins && in_id == i) - (ends && b_id == i);
      else if (ends && b_id == i && elder[i] != 0) elder[i] <= elder[i] - 1;
  end

  reg [3:0] age = 0;
  always @(posedge clk) begin
    age <= draining ? age + 1 : 0;
    if (FAIR) assert (age <= BOUND);
  end

  always @* begin
    assume (!p_in || (in_valid && {in_id, in_is_fault} == {p_in_id, p_in_fault}));
    assume (!p_w || w_valid);
    assume (!p_m || (b_valid && b_id == p_m_id));
    assume (!b_valid || answerable[b_id]);
    assume (!drain || (started && !draining));
    if (FAIR) assume (w_valid && w_ready && b_ready && b_valid == (answerable != 0));
    if (FAIR && draining && !p_m) assume (elder[b_id] != 0 || elder[!b_id] == 0 || !answerable[!b_id]);
  end

  // ---- all that is spoken of happens
  reg had_elders = 0, both = 0;
  always @(posedge clk) begin
    if (drain) had_elders <= waiting[0] != 0 && waiting[1] != 0;
    both <= both || (ends && waiting[!b_id] != 0 && whole[!b_id] == 0);
    if (started) begin
      cover (out && mine_faults[0] && both);
      // An error's data are dropped behind those of a burst that goes on, and before others.
      cover (last && faults[0] && places == 2 && waiting[!ids[0]] != 0);
      cover (last && !faults[0] && p_aw && places == 1);
      cover (drained && had_elders);
      cover (p_fault && open == 0 && waiting[!id] == 2);
    end
  end
endmodule
