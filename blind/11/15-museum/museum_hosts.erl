%% Where the nodes of the museum are: the depot is reached through the leased line.
-module(museum_hosts).
-export([start_link/0, register_node/2, register_node/3, port_please/2, port_please/3, address_please/3, listen_port_please/2, names/1]).

start_link() -> erl_epmd:start_link().
register_node(Name, Port) -> erl_epmd:register_node(Name, Port).
register_node(Name, Port, Family) -> erl_epmd:register_node(Name, Port, Family).
listen_port_please(Name, Host) -> erl_epmd:listen_port_please(Name, Host).
names(Host) -> erl_epmd:names(Host).
port_please(Name, Host) -> erl_epmd:port_please(Name, Host).
port_please(Name, Host, Timeout) -> erl_epmd:port_please(Name, Host, Timeout).

address_please(Name, Host, Family) ->
    case {lists:prefix("depot", Name), os:getenv("LINE_PORT")} of
        {true, P} when is_list(P) -> {ok, {127, 0, 0, 1}, list_to_integer(P), 6};
        _ -> erl_epmd:address_please(Name, Host, Family)
    end.
