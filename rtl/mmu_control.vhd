-- The registers of an MMU: AXI4-Lite, words of 32 bits, which are written whole.
--
-- offset | register
--      0 | the window's begin, bits 31 to 0; writing it and the next is for when nothing waits
--      4 | the same, bits 63 to 32
--      8 | the number of the word of the root that is written next; counts on
--     12 | that word, bits 31 to 0
--     16 | the same, bits 63 to 32: writes the word
--     20 | a first page, and at 24 a last one; counted from the begin of the space, or of the window if there is none
--     28 | the first of their frames
--     32 | command for these pages: bits 1 to 0 are 0, 1, 2 as flexible_tlb has them, or 3 to invalidate them;
--        | bit 4 whether they may be written to, bits 11 to 8 the memory. Read: bit 0, an invalidation is not done
--     36 | read only: entries of flexible length that had to go
--     40 | the begin of the driver's space, bits 31 to 0, and at 44 bits 63 to 32; for when nothing waits
--     48 | the driver's root word, bits 31 to 0
--     52 | the same, bits 63 to 32: puts the word into force
--
-- A write is answered when what it commands was taken: an invalidation by all that have to. Commands with a last page
-- before the first, and what is no register, are answered with an error and do nothing.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.window_pkg.all;

entity mmu_control is
  generic (
    AddrBits_g  : positive range 33 to 64 := 64;
    PageBits_g  : positive := 12;
    RootBits_g  : positive := 13;
    LeafBits_g  : positive := 13;
    -- Pages of the space, as a power of two; none: there is no space, and no registers of it.
    SpaceBits_g : natural range 0 to 32 := 0;
    FrameBits_g : positive range 1 to 32 := 28
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- AXI4-Lite
    Axi_AwValid  : in    std_logic;
    Axi_AwReady  : out   std_logic;
    Axi_AwAddr   : in    std_logic_vector(7 downto 0);
    Axi_WValid   : in    std_logic;
    Axi_WReady   : out   std_logic;
    Axi_WData    : in    std_logic_vector(31 downto 0);
    Axi_WStrb    : in    std_logic_vector(3 downto 0);
    Axi_BValid   : out   std_logic;
    Axi_BReady   : in    std_logic;
    Axi_BResp    : out   std_logic_vector(1 downto 0);
    Axi_ArValid  : in    std_logic;
    Axi_ArReady  : out   std_logic;
    Axi_ArAddr   : in    std_logic_vector(7 downto 0);
    Axi_RValid   : out   std_logic;
    Axi_RReady   : in    std_logic;
    Axi_RData    : out   std_logic_vector(31 downto 0);
    Axi_RResp    : out   std_logic_vector(1 downto 0);
    -- What it says
    Window_Base  : out   std_logic_vector(AddrBits_g - 1 downto PageBits_g + RootBits_g + LeafBits_g);
    Space_Base   : out   std_logic_vector(63 downto 0);
    Space_Root   : out   std_logic_vector(WordBits_c - 1 downto 0);
    Root_Valid   : out   std_logic;
    Root_Ready   : in    std_logic;
    Root_Index   : out   std_logic_vector(RootBits_g - 1 downto 0);
    Root_Word    : out   std_logic_vector(WordBits_c - 1 downto 0);
    Inval_Valid  : out   std_logic;
    Inval_Ready  : in    std_logic;
    Inval_Done   : in    std_logic;
    Cmd_Valid    : out   std_logic;
    Cmd_Ready    : in    std_logic;
    Cmd_Kind     : out   std_logic_vector(1 downto 0);
    Cmd_Writable : out   std_logic;
    Cmd_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Cmd_Frame    : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- Pages of invalidations and commands
    First        : out   std_logic_vector(maximum(SpaceBits_g, RootBits_g + LeafBits_g) - 1 downto 0);
    Last         : out   std_logic_vector(maximum(SpaceBits_g, RootBits_g + LeafBits_g) - 1 downto 0);
    Evictions    : in    std_logic_vector(31 downto 0)
  );
end entity;

architecture rtl of mmu_control is

  constant NumberBits_c : positive := maximum(SpaceBits_g, RootBits_g + LeafBits_g);
  -- Registers beyond this one are of the space.
  constant SpaceFrom_c  : natural := 36;
  constant KindInval_c  : std_logic_vector(1 downto 0) := "11";
  constant RespOk_c     : std_logic_vector(1 downto 0) := "00";
  constant RespError_c  : std_logic_vector(1 downto 0) := "10";

  subtype Page_t is std_logic_vector(NumberBits_c - 1 downto 0);

  -- A write is waited for, done, and answered.
  type State_t is (Idle, RootWord, Command, Invalidate, Answer);

  signal State    : State_t;
  signal Base     : std_logic_vector(63 downto 0);
  signal Space    : std_logic_vector(63 downto 0);
  signal SpaceLow : std_logic_vector(31 downto 0);
  signal SpaceRoot : std_logic_vector(WordBits_c - 1 downto 0);
  signal Index    : unsigned(RootBits_g - 1 downto 0);
  signal Word     : std_logic_vector(WordBits_c - 1 downto 0);
  signal FirstIs  : Page_t;
  signal LastIs   : Page_t;
  signal Frame    : std_logic_vector(FrameBits_g - 1 downto 0);
  signal Kind     : std_logic_vector(1 downto 0);
  signal Writable : std_logic;
  signal Memory   : std_logic_vector(MemoryBits_c - 1 downto 0);
  signal Draining : std_logic;
  signal WriteNow : std_logic;
  signal ReadNow  : std_logic;
  signal RValid   : std_logic;

begin

  WriteNow    <= Axi_AwValid and Axi_WValid when State = Idle else '0';
  Axi_AwReady <= WriteNow;
  Axi_WReady  <= WriteNow;
  Axi_BValid  <= '1' when State = Answer else '0';
  ReadNow     <= Axi_ArValid and not RValid;
  Axi_ArReady <= not RValid;
  Axi_RValid  <= RValid;

  Window_Base  <= Base(Window_Base'range);
  Space_Base   <= Space;
  Space_Root   <= SpaceRoot;
  Root_Valid   <= '1' when State = RootWord else '0';
  Root_Index   <= std_logic_vector(Index);
  Root_Word    <= Word;
  Inval_Valid  <= '1' when State = Invalidate else '0';
  Cmd_Valid    <= '1' when State = Command else '0';
  Cmd_Kind     <= Kind;
  Cmd_Writable <= Writable;
  Cmd_Memory   <= Memory;
  Cmd_Frame    <= Frame;
  First        <= FirstIs;
  Last         <= LastIs;

  p_write : process (Clk) is

    procedure write is
    begin
      State     <= Answer;
      Axi_BResp <= RespOk_c;
      if (and Axi_WStrb) = '0' or (SpaceBits_g = 0 and unsigned(Axi_AwAddr) > SpaceFrom_c) then
        Axi_BResp <= RespError_c;
        return;
      end if;
      case Axi_AwAddr is
        when x"00" =>
          Base(31 downto 0) <= Axi_WData;
        when x"04" =>
          Base(63 downto 32) <= Axi_WData;
        when x"08" =>
          Index <= unsigned(Axi_WData(Index'range));
        when x"0C" =>
          Word(31 downto 0) <= Axi_WData;
        when x"10" =>
          Word(63 downto 32) <= Axi_WData;
          State <= RootWord;
        when x"14" =>
          FirstIs <= Axi_WData(Page_t'range);
        when x"18" =>
          LastIs <= Axi_WData(Page_t'range);
        when x"1C" =>
          Frame <= Axi_WData(Frame'range);
        when x"20" =>
          Kind     <= Axi_WData(1 downto 0);
          Writable <= Axi_WData(4);
          Memory   <= Axi_WData(11 downto 8);
          if unsigned(FirstIs) > unsigned(LastIs) then
            Axi_BResp <= RespError_c;
          elsif Axi_WData(1 downto 0) = KindInval_c then
            State <= Invalidate;
          else
            State <= Command;
          end if;
        when x"28" =>
          Space(31 downto 0) <= Axi_WData;
        when x"2C" =>
          Space(63 downto 32) <= Axi_WData;
        when x"30" =>
          SpaceLow <= Axi_WData;
        when x"34" =>
          SpaceRoot <= Axi_WData & SpaceLow;
        when others =>
          Axi_BResp <= RespError_c;
      end case;
    end procedure;

  begin
    if rising_edge(Clk) then
      if Inval_Done = '1' then
        Draining <= '0';
      end if;
      case State is
        when Idle =>
          if WriteNow = '1' then
            write;
          end if;
        when RootWord =>
          if Root_Ready = '1' then
            Index <= Index + 1;
            State <= Answer;
          end if;
        when Command =>
          if Cmd_Ready = '1' then
            State <= Answer;
          end if;
        when Invalidate =>
          if Inval_Ready = '1' then
            Draining <= '1';
            State    <= Answer;
          end if;
        when Answer =>
          if Axi_BReady = '1' then
            State <= Idle;
          end if;
      end case;
      if Rst = '1' then
        State    <= Idle;
        Base     <= (others => '0');
        Space    <= (others => '0');
        Draining <= '0';
        SpaceRoot <= (others => '0');
      end if;
    end if;
  end process;

  p_read : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Axi_RReady = '1' then
        RValid <= '0';
      end if;
      if ReadNow = '1' then
        RValid    <= '1';
        Axi_RResp <= RespOk_c;
        Axi_RData <= (others => '0');
        case Axi_ArAddr is
          when x"20" =>
            Axi_RData(0) <= Draining;
          when x"24" =>
            Axi_RData <= Evictions;
          when others =>
            Axi_RResp <= RespError_c;
        end case;
      end if;
      if Rst = '1' then
        RValid <= '0';
      end if;
    end if;
  end process;

end architecture;
