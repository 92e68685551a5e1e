// What must hold of rtl/read_channel.vhd, for ids and data of one bit, bursts of one or two beats and two of them under way.
//
// Translation, memory and reader do whatever the ports allow: the memory answers what has begun, of each id in order.
// With FAIR it answers at once, what a drain waits for first, and the reader takes that: a drain ends within a bound.
module read_channel_proof (
    input clk,
    input in_valid, input in_is_fault, input in_id, input in_len, input ar_ready, input fault_ready,
    input r_valid, input r_id, input r_data, input r_ready, input drain
);
  parameter FAIR = 0;
  localparam BURSTS = 2;
  // Two bursts of two beats, an error of two beats behind each, and a step for each id and for the begin and the end.
  localparam BOUND = 12;

  reg started = 0;
  always @(posedge clk) started <= 1;
  wire rst = !started;

  wire in_ready, ar_valid, m_r_ready, fault_valid, s_valid, s_id, s_data, s_last, drained;
  wire [1:0] s_resp;
  // Bursts of each id in the memory, the oldest in bit 0: their lengths; and beats of the oldest that were sent.
  reg [1:0] lens [0:1];
  reg [1:0] waiting [0:1];
  reg beats [0:1];
  wire r_last = beats[r_id] == lens[r_id][0];

  read_channel dut (
      .Clk(clk), .Rst(rst),
      .In_Valid(in_valid), .In_Ready(in_ready), .In_IsFault(in_is_fault), .In_Id(in_id), .In_Len({7'd0, in_len}),
      .M_Ar_Valid(ar_valid), .M_Ar_Ready(ar_ready),
      .M_R_Valid(r_valid), .M_R_Ready(m_r_ready), .M_R_Id(r_id), .M_R_Data(r_data), .M_R_Resp(2'b00), .M_R_Last(r_last),
      .Fault_Valid(fault_valid), .Fault_Ready(fault_ready),
      .S_R_Valid(s_valid), .S_R_Ready(r_ready), .S_R_Id(s_id), .S_R_Data(s_data), .S_R_Resp(s_resp), .S_R_Last(s_last),
      .Drain(drain), .Drained(drained));

  wire begins = started && ar_valid && ar_ready;
  wire fails = started && fault_valid && fault_ready;
  wire beat = started && r_valid && m_r_ready;
  wire ends = beat && r_last;

  integer i;
  initial for (i = 0; i < 2; i = i + 1) begin
    waiting[i] = 0;
    lens[i] = 0;
    beats[i] = 0;
  end
  always @(posedge clk) for (i = 0; i < 2; i = i + 1) begin
    waiting[i] <= waiting[i] + (begins && in_id == i) - (ends && r_id == i);
    if (ends && r_id == i) lens[i] <= {1'b0, lens[i][1]} | (begins && in_id == i ? in_len << (waiting[i] - 1) : 2'd0);
    else if (begins && in_id == i) lens[i][waiting[i]] <= in_len;
    if (beat && r_id == i) beats[i] <= !r_last;
  end

  // ---- the bursts of one id, whichever, the oldest in bit 0: which are faults, and of two beats
  (* anyconst *) reg id;
  reg [3:0] faults = 0, twos = 0;
  reg [2:0] open = 0;
  reg came = 0;
  wire mine = started && in_valid && in_ready && in_id == id;
  wire out = started && s_valid && r_ready && s_id == id;
  always @(posedge clk) begin
    open <= open + mine - (out && s_last);
    faults <= (out && s_last ? faults >> 1 : faults) | (mine && in_is_fault) << (open - (out && s_last));
    twos <= (out && s_last ? twos >> 1 : twos) | (mine && in_len) << (open - (out && s_last));
    if (out) came <= !s_last;
    if (started) begin
      // It goes on or fails, not both, and is taken when it does.
      assert (in_ready == ((ar_valid && ar_ready) || (fault_valid && fault_ready)));
      assert (!(ar_valid && fault_valid));
      assert (open <= 3);
      if (s_valid && s_id == id) begin
        // Each burst has its beats, in order; those of a fault are errors without data.
        assert (open != 0);
        assert (s_last == (came == twos[0]));
        assert (s_resp == (faults[0] ? 2'b10 : 2'b00));
        if (faults[0]) assert (!s_data);
      end
    end
  end

  // ---- what is shown stays
  reg p_ar = 0, p_fault = 0, p_s = 0, p_id, p_last, p_in = 0, p_in_id, p_in_len, p_in_fault, p_r = 0, p_r_id, p_r_data;
  reg [1:0] p_resp;
  always @(posedge clk) begin
    p_ar <= started && ar_valid && !ar_ready;
    p_fault <= started && fault_valid && !fault_ready;
    p_s <= started && s_valid && !r_ready;
    {p_id, p_last, p_resp} <= {s_id, s_last, s_resp};
    p_in <= started && in_valid && !in_ready;
    {p_in_id, p_in_len, p_in_fault} <= {in_id, in_len, in_is_fault};
    p_r <= started && r_valid && !m_r_ready;
    {p_r_id, p_r_data} <= {r_id, r_data};
    if (started) begin
      if (p_ar) assert (ar_valid);
      if (p_fault) assert (fault_valid);
      if (p_s) assert (s_valid && {s_id, s_last, s_resp} == {p_id, p_last, p_resp});
      assert (waiting[0] + waiting[1] <= BURSTS);
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
      if (drain) elder[i] <= waiting[i] + (begins && in_id == i) - (ends && r_id == i);
      else if (ends && r_id == i && elder[i] != 0) elder[i] <= elder[i] - 1;
  end

  reg [3:0] age = 0;
  always @(posedge clk) begin
    age <= draining ? age + 1 : 0;
    if (FAIR) assert (age <= BOUND);
  end

  always @* begin
    assume (!p_in || (in_valid && {in_id, in_len, in_is_fault} == {p_in_id, p_in_len, p_in_fault}));
    assume (!p_r || (r_valid && {r_id, r_data} == {p_r_id, p_r_data}));
    assume (!r_valid || waiting[r_id] != 0);
    assume (!drain || (started && !draining));
    if (FAIR) assume (r_ready && r_valid == (waiting[0] + waiting[1] != 0));
    if (FAIR && draining) assume (elder[r_id] != 0 || elder[!r_id] == 0);
  end

  // ---- all that is spoken of happens
  reg had_elders = 0, mixed = 0;
  always @(posedge clk) begin
    if (drain) had_elders <= waiting[0] != 0 && waiting[1] != 0;
    // A beat of one id within a burst of the other.
    mixed <= mixed || (beat && beats[!r_id]);
    if (started) begin
      cover (out && s_last && faults[0] && twos[0]);
      cover (out && s_last && !faults[0] && twos[0] && mixed);
      cover (drained && had_elders);
      cover (p_fault && waiting[!p_in_id] == 2);
      // One is held up by an error of its id.
      cover (open == 1 && faults[0] && in_valid && in_id == id && !in_is_fault && !ar_valid);
    end
  end
endmodule
