-- Single frames come back, one a cycle: for a frame store, which has the words.
--
-- A frame's word is read in the cycle in which the frame is taken, looked at in the next one, and written in the one
-- behind that. Words of the two frames before may not be there yet when it is read: they are taken from here.

library ieee;
  use ieee.std_logic_1164.all;
  use ieee.numeric_std.all;

library work;
  use work.index_pkg.all;

entity frame_return is
  generic (
    -- Of a frame's number; frames of the memory; bits of a word, as a power of two.
    FrameBits_g : positive;
    Frames_g    : positive;
    WordBits_g  : positive
  );
  port (
    Clk        : in    std_logic;
    Rst        : in    std_logic;
    -- Nothing moves where it is 0: an answer has no place.
    Goes       : in    std_logic;
    -- A frame comes back; its word is read in this cycle, and stands until the next one goes.
    Take       : in    std_logic;
    Frame      : in    unsigned(FrameBits_g - 1 downto 0);
    Word_Bits  : in    std_logic_vector(2 ** WordBits_g - 1 downto 0);
    -- Some are on the way.
    IsOn       : out   std_logic;
    -- It is back, or was not in use: the answer, in the cycle in which its word is written.
    Done_Valid : out   std_logic;
    Done_Ok    : out   std_logic;
    Done_Frame : out   unsigned(FrameBits_g - 1 downto 0);
    Done_Bits  : out   std_logic_vector(2 ** WordBits_g - 1 downto 0)
  );
end entity;

architecture rtl of frame_return is

  subtype Word_t is std_logic_vector(2 ** WordBits_g - 1 downto 0);

  subtype Frame_t is unsigned(FrameBits_g - 1 downto 0);

  type Registers_t is record
    -- Whose word is there, unless it is that of the frame before, or of the one before that; its bit, where the memory
    -- has the frame.
    ReadValid : std_logic;
    ReadFrame : Frame_t;
    ReadBit   : Word_t;
    IsBefore  : std_logic;
    IsEarlier : std_logic;
    IsIn      : std_logic;
    -- The frame before, whose word is written, and that of the one before that.
    MadeValid : std_logic;
    MadeFrame : Frame_t;
    MadeOk    : std_logic;
    MadeBits  : Word_t;
    Earlier   : Word_t;
  end record;

  signal r   : Registers_t;
  -- The word as it is.
  signal Now : Word_t;

  function bitOf (which : Frame_t) return Word_t is
    variable bits_v : Word_t := (others => '0');
  begin
    bits_v(to_integer(which) mod 2 ** WordBits_g) := '1';
    return bits_v;
  end function;

  function inOneWord (one : Frame_t; other : Frame_t) return std_logic is
  begin
    if shift_right(one, WordBits_g) = shift_right(other, WordBits_g) then
      return '1';
    end if;
    return '0';
  end function;

begin

  IsOn       <= r.ReadValid or r.MadeValid;
  Done_Valid <= r.MadeValid and Goes;
  Done_Ok    <= r.MadeOk;
  Done_Frame <= r.MadeFrame;
  Done_Bits  <= r.MadeBits;

  Now <= r.MadeBits when r.IsBefore = '1' else r.Earlier when r.IsEarlier = '1' else Word_Bits;

  p_registers : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Goes = '1' then
        r.ReadValid <= Take;
        r.ReadFrame <= Frame;
        r.IsBefore  <= r.ReadValid and inOneWord(Frame, r.ReadFrame);
        r.IsEarlier <= r.MadeValid and inOneWord(Frame, r.MadeFrame);
        r.ReadBit   <= (others => '0');
        r.IsIn      <= '0';
        if Frames_g = 2 ** FrameBits_g or Frame < Frames_g then
          r.ReadBit <= bitOf(Frame);
          r.IsIn    <= '1';
        end if;
        r.MadeValid <= r.ReadValid;
        r.MadeFrame <= r.ReadFrame;
        r.MadeBits  <= Now or r.ReadBit;
        r.MadeOk    <= r.IsIn and not isAny(Now and r.ReadBit, 3);
        r.Earlier   <= r.MadeBits;
      end if;
      if Rst = '1' then
        r.ReadValid <= '0';
        r.MadeValid <= '0';
      end if;
    end if;
  end process;

end architecture;
