"""The cluster: nodes, transport, gateway and client."""
