-- Between who asks for walks and the walker: a page that a walk does not find is touched for the first time, and the
-- allocator says where it is; and of what the allocator has taken back, nothing is found. What is said of pages that
-- are none of the window goes on as it is.
--
-- Responses come in the order of walks, each a cycle later than the walker's. While a touch is answered the walks
-- behind it wait for their response, not for their reads. The walk's ticket, and the word that it has seen, go to the
-- allocator, which says what they are worth (docs/rtl/allocator_vhdl.md).

library ieee;
  use ieee.std_logic_1164.all;

library work;
  use work.window_pkg.all;

entity first_touch is
  generic (
    -- Pages of the window, as a power of two.
    WindowBits_g : positive := 26;
    -- Of a frame's number.
    FrameBits_g  : positive := 28;
    TicketBits_g : positive := 24;
    -- Walks that wait for their response; who asks sees to it that there are no more.
    Depth_g      : positive := 32
  );
  port (
    Clk           : in    std_logic;
    Rst           : in    std_logic;
    -- Pages, whether they are written to, and their responses
    Req_Valid     : in    std_logic;
    Req_Ready     : out   std_logic;
    Req_Page      : in    std_logic_vector(WindowBits_g - 1 downto 0);
    Req_IsSpace   : in    std_logic;
    Req_Write     : in    std_logic;
    Resp_Valid    : out   std_logic;
    Resp_Ready    : in    std_logic;
    Resp_Status   : out   Status_t;
    Resp_Writable : out   std_logic;
    Resp_Memory   : out   std_logic_vector(MemoryBits_c - 1 downto 0);
    Resp_Size     : out   std_logic_vector(SizeBits_c - 1 downto 0);
    Resp_Frame    : out   std_logic_vector(FrameBits_g - 1 downto 0);
    -- To the walker: pages; what a walk says, with the word that it has seen and the ticket of its line
    Walk_Valid    : out   std_logic;
    Walk_Ready    : in    std_logic;
    Came_Valid    : in    std_logic;
    Came_Ready    : out   std_logic;
    Came_Status   : in    Status_t;
    Came_Writable : in    std_logic;
    Came_Memory   : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Came_Size     : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Came_Frame    : in    std_logic_vector(FrameBits_g - 1 downto 0);
    Came_Seen     : in    std_logic;
    Came_Word     : in    std_logic_vector(WordBits_c - 1 downto 0);
    Came_Ticket   : in    std_logic_vector(TicketBits_g - 1 downto 0);
    -- To the allocator, as it has them
    Touch_Valid   : out   std_logic;
    Touch_Ready   : in    std_logic;
    Touch_Page    : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Touch_Write   : out   std_logic;
    Touch_Seen    : out   std_logic;
    Touch_Word    : out   std_logic_vector(WordBits_c - 1 downto 0);
    Touch_Ticket  : out   std_logic_vector(TicketBits_g - 1 downto 0);
    Found_Valid   : in    std_logic;
    Found_Ready   : out   std_logic;
    Found_Status  : in    Status_t;
    Found_Writable : in    std_logic;
    Found_Memory  : in    std_logic_vector(MemoryBits_c - 1 downto 0);
    Found_Size    : in    std_logic_vector(SizeBits_c - 1 downto 0);
    Found_Frame   : in    std_logic_vector(FrameBits_g - 1 downto 0);
    Gate_Page     : out   std_logic_vector(WindowBits_g - 1 downto 0);
    Gate_Closed   : in    std_logic
  );
end entity;

architecture rtl of first_touch is

  signal PagesIn   : std_logic_vector(WindowBits_g + 1 downto 0);
  signal PagesOut  : std_logic_vector(WindowBits_g + 1 downto 0);
  signal PagesPush : std_logic;
  -- The oldest walk's.
  signal Page      : std_logic_vector(WindowBits_g - 1 downto 0);
  signal IsWindow  : std_logic;
  signal Free      : std_logic;
  -- The oldest walk's page is touched; the allocator has taken that.
  signal IsTouch   : std_logic;
  signal Touching  : std_logic;
  signal Passes    : std_logic;
  signal IsFound   : std_logic;
  signal Done      : std_logic;
  signal RespValid : std_logic;

begin

  Walk_Valid <= Req_Valid;
  Req_Ready  <= Walk_Ready;
  PagesPush  <= Req_Valid and Walk_Ready;
  PagesIn    <= Req_IsSpace & Req_Write & Req_Page;

  i_pages : entity work.fifo
    generic map (
      Width_g => WindowBits_g + 2,
      Depth_g => Depth_g
    )
    port map (
      Clk       => Clk,
      Rst       => Rst,
      In_Valid  => PagesPush,
      In_Ready  => open,
      In_Data   => PagesIn,
      Out_Valid => open,
      Out_Ready => Done,
      Out_Data  => PagesOut,
      Level     => open,
      In_Place  => open,
      Out_Place => open
    );

  Page      <= PagesOut(WindowBits_g - 1 downto 0);
  Gate_Page <= Page;
  Free      <= not RespValid or Resp_Ready;
  IsWindow  <= not PagesOut(WindowBits_g + 1);
  IsTouch   <= IsWindow when Came_Status = StatusNotMapped_c else '0';
  Passes    <= Came_Valid and Free and not IsTouch;
  IsFound   <= Touching and Found_Valid and Free;
  Done      <= Passes or IsFound;

  Touch_Valid  <= Came_Valid and IsTouch and not Touching;
  Touch_Page   <= Page;
  Touch_Write  <= PagesOut(WindowBits_g);
  Touch_Seen   <= Came_Seen;
  Touch_Word   <= Came_Word;
  Touch_Ticket <= Came_Ticket;
  Found_Ready  <= Touching and Free;
  Came_Ready   <= Done;

  p_response : process (Clk) is
  begin
    if rising_edge(Clk) then
      if Touch_Ready = '1' and Came_Valid = '1' and IsTouch = '1' then
        Touching <= '1';
      end if;
      if IsFound = '1' then
        Touching <= '0';
      end if;
      if Resp_Ready = '1' then
        RespValid <= '0';
      end if;
      if Done = '1' then
        RespValid     <= '1';
        Resp_Status   <= Came_Status;
        Resp_Writable <= Came_Writable;
        Resp_Memory   <= Came_Memory;
        Resp_Size     <= Came_Size;
        Resp_Frame    <= Came_Frame;
        if Touching = '1' then
          Resp_Status   <= Found_Status;
          Resp_Writable <= Found_Writable;
          Resp_Memory   <= Found_Memory;
          Resp_Size     <= Found_Size;
          Resp_Frame    <= Found_Frame;
        elsif Gate_Closed = '1' and IsWindow = '1' then
          Resp_Status <= StatusNotMapped_c;
        end if;
      end if;
      if Rst = '1' then
        Touching  <= '0';
        RespValid <= '0';
      end if;
    end if;
  end process;

  Resp_Valid <= RespValid;

end architecture;
