-- The open region: the one whose bitmap of places lies on the chip, in memory those of the others. It is
-- brought from there, and written back when it has changed.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.bit_pkg.all;
  use work.window_pkg.all;

entity open_region is
  generic (
    RootBits_g : positive;
    LeafBits_g : positive;
    PhysBits_g : positive;
    -- Where the bitmaps begin, one behind the other.
    Maps_g     : natural
  );
  port (
    Clk          : in    std_logic;
    Rst          : in    std_logic;
    -- Whether a region is open, and which; memory has its bitmap otherwise.
    IsOpen       : out   std_logic;
    Opened       : out   std_logic_vector(RootBits_g - 1 downto 0);
    IsChanged    : out   std_logic;
    -- The region that is opened, in place of another, or of which no page is in use; none is open any more; or the
    -- open one's bitmap is written to memory. One at a time, while Op_Valid is 0.
    Region       : in    std_logic_vector(RootBits_g - 1 downto 0);
    Open_It      : in    std_logic;
    Begin_It     : in    std_logic;
    Close_It     : in    std_logic;
    Flush_It     : in    std_logic;
    -- For one cycle: it is opened, or written; a read has failed, and what was open stays so; a write has failed.
    Done         : out   std_logic;
    Failed       : out   std_logic;
    -- What is done with its places, as in place_row.
    Op_Valid     : in    std_logic;
    Op_Ready     : out   std_logic;
    Op_Find      : in    std_logic;
    Op_Here      : in    std_logic;
    Op_Longest   : in    std_logic;
    Op_Take      : in    std_logic;
    Op_New       : in    std_logic;
    Op_First     : in    std_logic_vector(LeafBits_g - 1 downto 0);
    Op_Count     : in    std_logic_vector(LeafBits_g downto 0);
    Ok           : out   std_logic;
    Place        : out   std_logic_vector(LeafBits_g - 1 downto 0);
    Longest      : out   std_logic_vector(LeafBits_g downto 0);
    -- Words of memory
    Read_Valid   : out   std_logic;
    Read_Ready   : in    std_logic;
    Write_Valid  : out   std_logic;
    Write_Ready  : in    std_logic;
    Addr         : out   std_logic_vector(PhysBits_g - 1 downto 0);
    Write_Word   : out   RowWord_t;
    Quiet        : in    std_logic;
    Write_Failed : in    std_logic;
    Data_Valid   : in    std_logic;
    Data         : in    RowWord_t;
    Data_Failed  : in    std_logic
  );
end entity;

architecture rtl of open_region is

  -- Words of a bitmap.
  constant Words_c    : positive := (2 ** LeafBits_g + RowBits_c - 1) / RowBits_c;
  constant WordBits_c : positive := bitsOf(Words_c);

  subtype Count_t is unsigned(WordBits_c downto 0);

  type State_t is (StateIdle, StateFlush, StateFlushed, StateRead, StateOpened);

  signal State     : State_t;
  signal HasOpen   : std_logic;
  signal Current   : std_logic_vector(RootBits_g - 1 downto 0);
  signal Changed   : std_logic;
  -- The flush is for another region, which is read then.
  signal Opening   : std_logic;
  -- Words that were asked for, and that came or went.
  signal Asked     : Count_t;
  signal Got       : Count_t;
  signal HasFailed : std_logic;
  signal Index     : std_logic_vector(WordBits_c - 1 downto 0);
  signal Load      : std_logic;
  signal Swap      : std_logic;

  function addrOf (of_region : std_logic_vector(RootBits_g - 1 downto 0); word : Count_t) return std_logic_vector is
    -- As few bits as there are words of bitmaps, and of what lies before them.
    constant Bits_c : positive := bitsOf(2 ** (RootBits_g + exponent(Words_c)) + Maps_g / 2 ** WordShift_c);
    variable word_v : unsigned(Bits_c - 1 downto 0);
  begin
    word_v := shift_left(resize(unsigned(of_region), Bits_c), exponent(Words_c)) or resize(word, Bits_c);
    word_v := word_v + Maps_g / 2 ** WordShift_c;
    return std_logic_vector(shift_left(resize(word_v, PhysBits_g), WordShift_c));
  end function;

begin

  IsOpen    <= HasOpen;
  Opened    <= Current;
  IsChanged <= Changed;

  Read_Valid  <= '1' when State = StateRead and Asked /= Words_c else '0';
  Write_Valid <= '1' when State = StateFlush else '0';
  Addr        <= addrOf(Current, Got) when State = StateFlush else addrOf(Region, Asked);

  Index <= std_logic_vector(Got(WordBits_c - 1 downto 0));
  Load  <= Data_Valid when State = StateRead else '0';
  Swap  <= Quiet and not HasFailed and not Write_Failed when State = StateOpened else '0';

  Done   <= Quiet when State = StateFlushed or State = StateOpened else '0';
  Failed <= HasFailed;

  p_move : process (Clk) is
  begin
    if rising_edge(Clk) then
      case State is

        when StateIdle =>
          Asked     <= (others => '0');
          Got       <= (others => '0');
          HasFailed <= '0';
          Opening   <= Open_It;
          if (Open_It = '1' and Changed = '1') or Flush_It = '1' then
            State <= StateFlush;
          elsif Open_It = '1' then
            State <= StateRead;
          end if;

        when StateFlush =>
          if Write_Ready = '1' then
            Got <= Got + 1;
            if Got = Words_c - 1 then
              Got   <= (others => '0');
              State <= StateFlushed;
              if Opening = '1' then
                State <= StateRead;
              end if;
            end if;
          end if;

        when StateFlushed =>
          if Quiet = '1' then
            Changed <= '0';
            State   <= StateIdle;
          end if;

        when StateRead =>
          if Read_Valid = '1' and Read_Ready = '1' then
            Asked <= Asked + 1;
          end if;
          if Data_Valid = '1' then
            Got       <= Got + 1;
            HasFailed <= HasFailed or Data_Failed;
          end if;
          if Got = Words_c then
            State <= StateOpened;
          end if;

        when StateOpened =>
          if Quiet = '1' then
            State <= StateIdle;
          end if;
          if Swap = '1' then
            HasOpen <= '1';
            Current <= Region;
            Changed <= '0';
          end if;

      end case;
      if Op_Valid = '1' and Op_Find = '0' and Op_Longest = '0' then
        Changed <= '1';
      end if;
      if Begin_It = '1' then
        HasOpen <= '1';
        Current <= Region;
      end if;
      if Close_It = '1' then
        HasOpen <= '0';
        Changed <= '0';
      end if;
      if Rst = '1' then
        State   <= StateIdle;
        HasOpen <= '0';
        Changed <= '0';
      end if;
    end if;
  end process;

  i_places : entity work.place_row
    generic map (
      LeafBits_g => LeafBits_g,
      WordBits_g => WordBits_c
    )
    port map (
      Clk        => Clk,
      Rst        => Rst,
      Op_Valid   => Op_Valid,
      Op_Ready   => Op_Ready,
      Op_Find    => Op_Find,
      Op_Here    => Op_Here,
      Op_Longest => Op_Longest,
      Op_Take    => Op_Take,
      Op_New     => Op_New,
      Op_First   => Op_First,
      Op_Count   => Op_Count,
      Ok         => Ok,
      Place      => Place,
      Longest    => Longest,
      Word_Index => Index,
      Word       => Write_Word,
      Load_Valid => Load,
      Load_Index => Index,
      Load_Word  => Data,
      Swap       => Swap
    );

end architecture;
