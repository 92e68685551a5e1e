-- Between the allocator and the memory of the tables: AXI4 with beats of eight words, and when all of it is done.
--
-- Writes may be under way by the dozen; Quiet says that each has its response, so that whoever reads sees what
-- was written, and Failed whether one of them was an error since the reset. Reads come back in order;
-- as many may be under way as there is room for outside, which is the reader's to see to.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.alloc_pkg.all;
  use work.index_pkg.all;
  use work.window_pkg.all;

entity barrier is
  generic (
    PhysBits_g : positive := 40;
    -- Of a frame's number.
    FrameBits_g : positive := 12;
    -- Writes under way, as many as a memory answers later than it takes them, and reads.
    Writes_g   : positive := 128;
    Depth_g    : positive := 64
  );
  port (
    Clk         : in    std_logic;
    Rst         : in    std_logic;
    -- A word is written, or several of its beat, all with the same, or with frames one behind the other, of which
    -- that is the first, aligned; or with lanes of their own, of one word too
    Write_Valid : in    std_logic;
    Write_Ready : out   std_logic;
    Write_Addr  : in    std_logic_vector(PhysBits_g - 1 downto 0);
    Write_Word  : in    std_logic_vector(WordBits_c - 1 downto 0);
    Write_Many  : in    std_logic;
    Write_Run   : in    std_logic;
    Write_Each  : in    std_logic;
    Write_Lanes : in    std_logic_vector(BeatWords_c * (LaneMarks_c + FrameBits_g) - 1 downto 0);
    Write_Mask  : in    WordMask_t;
    -- A word is read, with its beat
    Read_Valid  : in    std_logic;
    Read_Ready  : out   std_logic;
    Read_Addr   : in    std_logic_vector(PhysBits_g - 1 downto 0);
    -- The word of the beat that is there.
    Read_Word   : out   TableWord_t;
    -- Nothing is under way.
    Quiet       : out   std_logic;
    Failed      : out   std_logic;
    -- AXI4; the beats of reads go to the reader as they are.
    Axi_AwValid : out   std_logic;
    Axi_AwReady : in    std_logic;
    Axi_AwAddr  : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_WValid  : out   std_logic;
    Axi_WReady  : in    std_logic;
    Axi_WData   : out   Beat_t;
    Axi_WStrb   : out   std_logic_vector(Beat_t'length / 8 - 1 downto 0);
    Axi_BValid  : in    std_logic;
    Axi_BReady  : out   std_logic;
    Axi_BResp   : in    std_logic_vector(1 downto 0);
    Axi_ArValid : out   std_logic;
    Axi_ArReady : in    std_logic;
    Axi_ArAddr  : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Axi_RValid  : in    std_logic;
    Axi_RData   : in    Beat_t
  );
end entity;

architecture rtl of barrier is

  constant LaneBits_c : positive := LaneMarks_c + FrameBits_g;

  type Whiches_t is array (0 to Depth_g - 1) of std_logic_vector(BeatShift_c - 1 downto 0);

  signal AwHeld    : std_logic;
  signal WHeld     : std_logic;
  signal ArHeld    : std_logic;
  signal AwAddr    : std_logic_vector(PhysBits_g - 1 downto 0);
  signal WData     : TableWord_t;
  signal WLanes    : std_logic_vector(Write_Lanes'range);
  signal WMask     : WordMask_t;
  signal ArAddr    : std_logic_vector(PhysBits_g - 1 downto 0);
  signal Writes    : natural range 0 to Writes_g;
  signal Reads     : natural range 0 to Depth_g;
  -- There is room for one more, and nothing is under way: known a cycle before, as much waits for it.
  signal MayWrite  : std_logic;
  signal MayRead   : std_logic;
  signal IsQuiet   : std_logic;
  signal WriteTook : std_logic;
  signal ReadTook  : std_logic;
  signal HasFailed : std_logic;
  -- Which words of their beats are read, in their order: that of the next one that is asked for, and that comes.
  -- MayRead says that there is a place.
  signal Whiches   : Whiches_t;
  signal AskedAt   : natural range 0 to Depth_g - 1;
  signal ComesAt   : natural range 0 to Depth_g - 1;
  signal Which     : std_logic_vector(BeatShift_c - 1 downto 0);

  function wordOf (addr : std_logic_vector) return std_logic_vector is
  begin
    return addr(WordShift_c + BeatShift_c - 1 downto WordShift_c);
  end function;

  function beatOf (addr : std_logic_vector(PhysBits_g - 1 downto 0)) return std_logic_vector is
    variable addr_v : std_logic_vector(PhysBits_g - 1 downto 0) := addr;
  begin
    addr_v(WordShift_c + BeatShift_c - 1 downto 0) := (others => '0');
    return addr_v;
  end function;

  function only (which_word : std_logic_vector(BeatShift_c - 1 downto 0)) return WordMask_t is
    variable mask_v : WordMask_t := (others => '0');
  begin
    mask_v(to_integer(unsigned(which_word))) := '1';
    return mask_v;
  end function;

  -- The word so many behind another of its run.
  function ofRun (word : TableWord_t; behind : natural; is_run : std_logic) return TableWord_t is
    constant Place_c : std_logic_vector(BeatShift_c - 1 downto 0) :=
      std_logic_vector(to_unsigned(behind, BeatShift_c));
    variable word_v : TableWord_t := word;
  begin
    for b in Place_c'range loop
      word_v(NumberLow_c + b) := word(NumberLow_c + b) or (Place_c(b) and is_run);
    end loop;
    return word_v;
  end function;

begin

  Axi_AwValid <= AwHeld;
  Axi_AwAddr  <= AwAddr;
  Axi_WValid  <= WHeld;

  g_words : for i in 0 to BeatWords_c - 1 generate
    Axi_WData(WordBits_c * (i + 1) - 1 downto WordBits_c * i)         <=
      withLane(WData, WLanes(LaneBits_c * (i + 1) - 1 downto LaneBits_c * i));
    Axi_WStrb(WordBits_c / 8 * (i + 1) - 1 downto WordBits_c / 8 * i) <= (others => WMask(i));
  end generate;

  Read_Word   <= Axi_RData(WordBits_c * (to_integer(unsigned(Which)) + 1) - 1 downto
                           WordBits_c * to_integer(unsigned(Which)));

  Which <= Whiches(ComesAt);

  p_which : process (Clk) is
  begin
    if rising_edge(Clk) then
      if ReadTook = '1' then
        Whiches(AskedAt) <= wordOf(Read_Addr);
        AskedAt <= following(AskedAt, Depth_g);
      end if;
      if Axi_RValid = '1' then
        ComesAt <= following(ComesAt, Depth_g);
      end if;
      if Rst = '1' then
        AskedAt <= 0;
        ComesAt <= 0;
      end if;
    end if;
  end process;

  Axi_BReady  <= '1';
  Axi_ArValid <= ArHeld;
  Axi_ArAddr  <= ArAddr;

  Write_Ready <= '1' when (AwHeld = '0' or Axi_AwReady = '1') and (WHeld = '0' or Axi_WReady = '1')
                          and MayWrite = '1' else '0';
  Read_Ready  <= '1' when (ArHeld = '0' or Axi_ArReady = '1') and MayRead = '1' else '0';

  WriteTook <= Write_Valid and Write_Ready;
  ReadTook  <= Read_Valid and Read_Ready;

  Quiet  <= IsQuiet;
  Failed <= HasFailed;

  p_held : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_AwReady = '1' then
        AwHeld <= '0';
      end if;
      if Axi_WReady = '1' then
        WHeld <= '0';
      end if;
      if WriteTook = '1' then
        AwHeld <= '1';
        WHeld  <= '1';
        AwAddr <= beatOf(Write_Addr);
        WData  <= Write_Word;
        WLanes <= Write_Lanes;
        if Write_Each = '0' then
          for i in 0 to BeatWords_c - 1 loop
            WLanes(LaneBits_c * (i + 1) - 1 downto LaneBits_c * i) <=
              laneOfWord(ofRun(Write_Word, i, Write_Run), FrameBits_g);
          end loop;
        end if;
        WMask  <= only(wordOf(Write_Addr));
        if Write_Many = '1' then
          WMask <= Write_Mask;
        end if;
      end if;
      if Axi_ArReady = '1' then
        ArHeld <= '0';
      end if;
      if ReadTook = '1' then
        ArHeld <= '1';
        ArAddr <= beatOf(Read_Addr);
      end if;
      if Rst = '1' then
        AwHeld <= '0';
        WHeld  <= '0';
        ArHeld <= '0';
      end if;
    end if;
  end process;

  p_counts : process (Clk) is
  begin
    if rising_edge(Clk) then
      if WriteTook = '1' and Axi_BValid = '0' then
        Writes <= Writes + 1;
      elsif WriteTook = '0' and Axi_BValid = '1' and Writes /= 0 then
        Writes <= Writes - 1;
      end if;
      if ReadTook = '1' and Axi_RValid = '0' then
        Reads <= Reads + 1;
      elsif ReadTook = '0' and Axi_RValid = '1' and Reads /= 0 then
        Reads <= Reads - 1;
      end if;
      MayWrite <= '1';
      if (Writes = Writes_g or (Writes = Writes_g - 1 and WriteTook = '1')) and Axi_BValid = '0' then
        MayWrite <= '0';
      end if;
      MayRead <= '1';
      if (Reads = Depth_g or (Reads = Depth_g - 1 and ReadTook = '1')) and Axi_RValid = '0' then
        MayRead <= '0';
      end if;
      IsQuiet <= '0';
      if WriteTook = '0' and (Writes = 0 or (Writes = 1 and Axi_BValid = '1')) and
        ReadTook = '0' and (Reads = 0 or (Reads = 1 and Axi_RValid = '1')) then
        IsQuiet <= '1';
      end if;
      if Axi_BValid = '1' and Axi_BResp(1) = '1' then
        HasFailed <= '1';
      end if;
      if Rst = '1' then
        Writes    <= 0;
        Reads     <= 0;
        IsQuiet   <= '1';
        HasFailed <= '0';
      end if;
    end if;
  end process;

end architecture;
