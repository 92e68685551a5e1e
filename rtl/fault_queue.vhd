-- The records of two who have bursts that cannot go on, as one stream: which burst, of whom, and why.
--
-- Who had none last goes first. Nothing is lost: while nobody takes them, who has one waits.

library ieee;
  use ieee.std_logic_1164.all;

entity fault_queue is
  generic (
    -- Of a record.
    Width_g : positive;
    Depth_g : positive := 4
  );
  port (
    Clk       : in    std_logic;
    Rst       : in    std_logic;
    In_Valid  : in    std_logic_vector(1 downto 0);
    In_Ready  : out   std_logic_vector(1 downto 0);
    In_0      : in    std_logic_vector(Width_g - 1 downto 0);
    In_1      : in    std_logic_vector(Width_g - 1 downto 0);
    Out_Valid : out   std_logic;
    Out_Ready : in    std_logic;
    -- Whose it is.
    Out_Whose : out   std_logic;
    Out_Data  : out   std_logic_vector(Width_g - 1 downto 0)
  );
end entity;

architecture rtl of fault_queue is

  signal First  : std_logic;
  signal Chosen : std_logic;
  signal Valid  : std_logic;
  signal Ready  : std_logic;
  signal Record_In  : std_logic_vector(Width_g downto 0);
  signal Record_Out : std_logic_vector(Width_g downto 0);

begin

  Chosen    <= In_Valid(1) and (First or not In_Valid(0));
  Valid     <= or (In_Valid);
  In_Ready  <= (1 => Ready and Chosen, 0 => Ready and not Chosen);
  Record_In <= '1' & In_1 when Chosen = '1' else '0' & In_0;
  Out_Whose <= Record_Out(Width_g);
  Out_Data  <= Record_Out(Width_g - 1 downto 0);

  p_turns : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Valid = '1' and Ready = '1' then
        First <= not Chosen;
      end if;
      if Rst = '1' then
        First <= '0';
      end if;
    end if;
  end process;

  i_records : entity work.fifo
    generic map (
      Width_g => Width_g + 1,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => Valid,
      In_Ready  => Ready,
      In_Data   => Record_In,
      Out_Valid => Out_Valid,
      Out_Ready => Out_Ready,
      Out_Data  => Record_Out,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

end architecture;
