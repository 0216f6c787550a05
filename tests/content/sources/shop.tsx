import React from "react";

interface Props {
  orders: string[];
}

export const Orders: React.FC<Props> = ({ orders }) => {
  const open = () => {
    window.alert("open");
  };
  return (
    <ul onClick={open}>
      {orders.map((order) => (
        <li key={order}>{order}</li>
      ))}
    </ul>
  );
};

export default function App() {
  return <Orders orders={["a", "b"]} />;
}
